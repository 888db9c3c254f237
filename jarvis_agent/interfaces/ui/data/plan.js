// A box of the graph shows the details of its task, at first those of the last one.
let shown = null;
const draw = () => {
  const details = [...element.querySelectorAll(".about")];
  const current = details.some((one) => one.dataset.task === shown) ? shown : details.at(-1)?.dataset.task;
  details.forEach((one) => (one.hidden = one.dataset.task !== current));
  element.querySelectorAll("button.task").forEach((one) => (one.ariaPressed = one.dataset.task === current));
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
watch("value", draw);
draw();
