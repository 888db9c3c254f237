// Files that are dropped anywhere on the page are added to the request.
() => {
  const input = () => document.querySelector("#box input[type=file]");
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    if (event.target.closest("#box") || !event.dataTransfer.files.length || !input()) return;
    event.preventDefault();
    input().files = event.dataTransfer.files;
    input().dispatchEvent(new Event("change", { bubbles: true }));
  });
};
