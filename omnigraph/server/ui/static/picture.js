// Pan, zoom, pin and PNG for pictures. Without this script a picture is still there, and its
// expansions are links; with it, they change the page in place.
const SCALE_MIN = 0.2, SCALE_MAX = 6, STEP = 60;

export function openPictures(root) {
  for (const figure of root.querySelectorAll("[data-picture]")) open(figure);
  for (const link of root.querySelectorAll("#neighbourhood a[data-stay], #neighbourhood svg a")) {
    link.addEventListener("click", stay);
  }
}

async function stay(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented) return;
  event.preventDefault();
  const address = this.getAttribute("href");
  await show(address);
  history.pushState(null, "", address);
}

async function show(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok) { location.href = address; return; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("neighbourhood");
  const old = document.getElementById("neighbourhood");
  if (!fresh || !old) { location.href = address; return; }
  old.replaceWith(document.adoptNode(fresh));
  openPictures(document.getElementById("neighbourhood"));
}

addEventListener("popstate", () => {
  if (document.getElementById("neighbourhood")) show(location.href);
});

function open(figure) {
  const canvas = figure.querySelector(".canvas"), svg = canvas.querySelector("svg");
  const scene = svg.querySelector(".scene");
  const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
  const view = { x: 0, y: 0, scale: 1 };
  figure.querySelector(".tools").hidden = false;
  const apply = () => scene.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  const unit = () => width / Math.max(1, svg.getBoundingClientRect().width);
  const zoom = (factor, px, py) => {
    const next = Math.min(SCALE_MAX, Math.max(SCALE_MIN, view.scale * factor));
    const box = svg.getBoundingClientRect();
    const x = (px - box.left) * unit() + svg.viewBox.baseVal.x, y = (py - box.top) * unit() + svg.viewBox.baseVal.y;
    view.x = x - (x - view.x) * next / view.scale;
    view.y = y - (y - view.y) * next / view.scale;
    view.scale = next;
    apply();
  };
  const middle = () => { const b = svg.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; };
  for (const button of figure.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => {
      const factor = Number(button.dataset.zoom);
      if (factor === 0) { Object.assign(view, { x: 0, y: 0, scale: 1 }); apply(); } else zoom(factor, ...middle());
    });
  }
  figure.querySelector("[data-png]")?.addEventListener("click", () => png(svg, width, height));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 0.87, event.clientX, event.clientY);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    if (event.target !== canvas) return;
    if (moves[event.key]) { view.x += moves[event.key][0]; view.y += moves[event.key][1]; apply(); }
    else if (event.key === "+" || event.key === "=") zoom(1.25, ...middle());
    else if (event.key === "-") zoom(0.8, ...middle());
    else return;
    event.preventDefault();
  });
  drag(canvas, svg, view, apply, unit);
}

function drag(canvas, svg, view, apply, unit) {
  let from = null, node = null, moved = false;
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  canvas.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY]; moved = false;
    node = event.target.closest("#neighbourhood .node");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || event.buttons === 0) return;
    const dx = (event.clientX - from[0]) * unit(), dy = (event.clientY - from[1]) * unit();
    if (Math.hypot(dx, dy) < 4 && !moved) return;
    moved = true;
    if (node) node.setAttribute("transform", `translate(${dx / view.scale} ${dy / view.scale})`);
    else { view.x += dx; view.y += dy; from = [event.clientX, event.clientY]; apply(); }
  });
  addEventListener("pointerup", (event) => {
    if (from && node && moved) pin(node, (event.clientX - from[0]) * unit() / view.scale, (event.clientY - from[1]) * unit() / view.scale);
    from = null; node = null;
  });
  canvas.addEventListener("click", (event) => { if (moved) { event.preventDefault(); event.stopPropagation(); } }, true);
}

// A node that was dragged stays where it was put: its position goes into the address.
async function pin(node, dx, dy) {
  const address = new URL(location.href);
  const circle = node.querySelector("circle");
  const all = [...node.closest("svg").querySelectorAll(".node")];
  address.searchParams.delete("pin");
  for (const each of all) {
    const dot = each.querySelector("circle");
    const [x, y] = [Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy"))];
    const shift = each === node ? [dx, dy] : [0, 0];
    if (each === node || wasPinned(each.dataset.key)) {
      address.searchParams.append("pin", JSON.stringify([each.dataset.key, Math.round(x + shift[0]), Math.round(y + shift[1])]));
    }
  }
  if (!circle) return;
  await show(address.pathname + address.search);
  history.pushState(null, "", address);
}

function wasPinned(key) {
  return new URL(location.href).searchParams.getAll("pin").some((text) => JSON.parse(text)[0] === key);
}

async function png(svg, width, height) {
  const copy = svg.cloneNode(true);
  const sheet = document.createElementNS("http://www.w3.org/2000/svg", "style");
  const theme = document.documentElement.dataset.theme;
  const rules = await (await fetch("/ui/static/draw.css")).text();
  sheet.textContent = rules;
  copy.prepend(sheet);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  if (theme) copy.setAttribute("data-theme", theme);
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * 2; canvas.height = height * 2;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  const link = document.createElement("a");
  link.download = "picture.png";
  link.href = canvas.toDataURL("image/png");
  link.click();
}
