// A box of the graph shows the details of its task, at first those of the last one. What is open stays open when
// the plan is drawn again.
let shown = null;
let newest = null;
const open = new Set();
const draw = () => {
  const details = [...element.querySelectorAll(".about")];
  const last = details.findLast((one) => !one.closest(".earlier"))?.dataset.task;
  const turn = last?.split("-")[0];
  if (turn !== newest) shown = null;
  newest = turn;
  const current = details.some((one) => one.dataset.task === shown) ? shown : last;
  details.forEach((one) => (one.hidden = one.dataset.task !== current));
  element.querySelectorAll("button.task").forEach((one) => (one.ariaPressed = one.dataset.task === current));
  element.querySelectorAll(".earlier").forEach((one) => (one.open = open.has(one.dataset.task)));
};

element.addEventListener("click", (event) => {
  const box = event.target.closest("button.task");
  if (!box) return;
  shown = box.dataset.task;
  draw();
  element.querySelector(".about:not([hidden])")?.scrollIntoView({ block: "nearest", behavior: "smooth" });
});
element.addEventListener("change", (event) => {
  const { value, dataset } = event.target;
  if (value) trigger("select", { index: dataset.task.split("-").map(Number), value });
});
element.addEventListener(
  "toggle",
  (event) => {
    const name = event.target.dataset.task;
    event.target.open ? open.add(name) : open.delete(name);
  },
  true,
);
watch("value", draw);
draw();
