// What every page needs a script for: news, confirmations, and the parts that a page holds.
import { openPictures } from "./picture.js";
import { openEditor } from "./editor.js";

const news = document.getElementById("news");
if (news) {
  const source = new EventSource(news.dataset.events);
  source.addEventListener("commits", (event) => {
    const count = JSON.parse(event.data).new;
    news.hidden = count === 0;
    news.querySelector("span").textContent = count === 1 ? "1 new commit." : `${count} new commits.`;
  });
  news.querySelector("a").href = location.href;
  addEventListener("pagehide", () => source.close());
}

for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    if (!confirm(form.dataset.confirm)) event.preventDefault();
  });
}

for (const image of document.querySelectorAll("img[data-preview]")) {
  const hide = () => { image.hidden = true; };
  if (image.complete && image.naturalWidth === 0) hide();
  image.addEventListener("error", hide);
}

for (const field of document.querySelectorAll(".conflict input[name^='value.']")) {
  field.addEventListener("input", () => {
    const choice = field.closest(".conflict").querySelector("input[value='values']");
    if (choice) choice.checked = true;
  });
}

openPictures(document);
openEditor(document.querySelector("[data-editor]"));
