"""The pool of local models in a forked child."""

from __future__ import annotations

import asyncio

from forked import in_child, needs_fork
from test_pool import Model, call_of

from jarvis_agent.backends.pool import ModelPool


@needs_fork
def test_a_forked_child_loads_the_models_again() -> None:
    """Threads of the pool, and of the libraries of its models, do not exist in the child."""
    pool, model, other = ModelPool(limit_bytes=100), Model(nbytes=5), Model(nbytes=7)

    async def use(*models: Model) -> tuple[dict[str, int], int]:
        for name, one in zip("ab", models, strict=False):
            assert await pool.run((name,), one.load, call_of(name)) == name
        return pool.used, model.loads

    assert asyncio.run(use(model)) == ({"cpu": 5}, 1)
    assert in_child(lambda: asyncio.run(use(model, other))) == ({"cpu": 12}, 2)
    assert asyncio.run(use(model, other)) == ({"cpu": 12}, 1)
    asyncio.run(pool.close())
