// A box of the graph opens the details of its task. What is open stays open when the plan is drawn again.
const open = new Set();
const details = () => [...element.querySelectorAll("details[data-task]")];

element.addEventListener("click", (event) => {
  const box = event.target.closest("button[data-task]");
  if (!box) return;
  const found = details().find((one) => one.dataset.task === box.dataset.task);
  found.open = true;
  found.querySelector("summary").focus({ preventScroll: true });
  found.scrollIntoView({ block: "nearest", behavior: "smooth" });
});
element.addEventListener(
  "toggle",
  (event) => {
    const name = event.target.dataset.task;
    event.target.open ? open.add(name) : open.delete(name);
  },
  true,
);
watch("value", () => details().forEach((one) => (one.open = open.has(one.dataset.task))));
