// Files that are dropped anywhere on the page are added to the request.
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  const input = document.querySelector("#box input[type=file]");
  if (event.target.closest("#box") || !event.dataTransfer.files.length || !input) return;
  event.preventDefault();
  input.files = event.dataTransfer.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
});

// The menu is open where there is room for it.
window.jarvisMenu = () => innerWidth < 1200 || document.querySelector("#menu:not(.open) .toggle-button")?.click();

// A chat is deleted when its visitor says so twice.
addEventListener("click", (event) => {
  const button = event.target.closest("#delete");
  if (button && !confirm(`${button.textContent.trim()}?`)) event.stopImmediatePropagation();
}, true);
