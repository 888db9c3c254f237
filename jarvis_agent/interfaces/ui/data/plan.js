// A box of the graph shows or hides the details of its task. What is open stays open when the plan is drawn again.
let shown = null;
const open = new Set();
const draw = () => {
  element.querySelectorAll(".about").forEach((one) => (one.hidden = one.dataset.task !== shown));
  element.querySelectorAll("button.task").forEach((one) => (one.ariaExpanded = one.dataset.task === shown));
  element.querySelectorAll(".earlier").forEach((one) => (one.open = open.has(one.dataset.task)));
};

element.addEventListener("click", (event) => {
  const box = event.target.closest("button.task");
  if (!box) return;
  shown = box.dataset.task === shown ? null : box.dataset.task;
  draw();
  element.querySelector(".about:not([hidden])")?.scrollIntoView({ block: "nearest", behavior: "smooth" });
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
