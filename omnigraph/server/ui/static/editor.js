// The query editor: colours, faults while typing, completions. The text itself is a plain textarea.
const WORDS = /(\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|("(?:[^"\\\n]|\\.)*"?)|(\$\w+)|\b(query|match|return|distinct|having|order|limit|offset|not|exists|optional|unwind|as|and|or|in|is|null|contains|starts_with|ends_with|matches|case|when|then|else|end|desc|asc|true|false|insert|upsert|update|delete|set|where)\b|\b([A-Z]\w*)\b|\b(\d[\d.]*)\b/g;
const KINDS = ["comment", "string", "variable", "keyword", "type", "number"];
const WAIT_MS = 300;

export function openEditor(frame) {
  if (!frame) return;
  const area = frame.querySelector("textarea"), behind = frame.querySelector("pre");
  const list = frame.querySelector(".suggestions"), faults = document.getElementById("faults");
  const point = () => document.querySelector("input[name=point]").value;
  let words = [], typed = "", chosen = 0, timer = 0, asked = 0;

  const paint = () => {
    behind.replaceChildren(...coloured(area.value), document.createTextNode("\n"));
    behind.scrollTop = area.scrollTop; behind.scrollLeft = area.scrollLeft;
  };
  const ask = async (address, text) => {
    const url = new URL(address, location.href);
    url.searchParams.set("q", text); url.searchParams.set("point", point());
    const answer = await fetch(url);
    return answer.ok ? answer.json() : null;
  };
  const check = async () => {
    const mine = ++asked;
    const found = area.value.trim() ? await ask(frame.dataset.check, area.value) : null;
    if (mine !== asked || !found) return;
    faults.replaceChildren(...found.faults.map((fault) => {
      const line = document.createElement("p");
      line.className = "fault";
      line.textContent = `line ${fault.line}, column ${fault.column}: ${fault.text}${fault.hint ? ` (${fault.hint})` : ""}`;
      return line;
    }));
  };
  const close = () => { list.hidden = true; words = []; area.removeAttribute("aria-activedescendant"); };
  const complete = async () => {
    const before = area.value.slice(0, area.selectionStart);
    const found = await ask(frame.dataset.suggest, before);
    if (!found || area.value.slice(0, area.selectionStart) !== before) return;
    ({ words, typed } = found); chosen = 0;
    if (!words.length || (typed === "" && !/[.:]\s*$/.test(before))) { close(); return; }
    render();
  };
  const render = () => {
    list.replaceChildren(...words.slice(0, 8).map((word, n) => {
      const item = document.createElement("li");
      item.id = `suggestion-${n}`; item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(n === chosen));
      item.textContent = word.text;
      const about = document.createElement("span");
      about.textContent = word.about; item.append(about);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(n); });
      return item;
    }));
    list.hidden = false;
    area.setAttribute("aria-activedescendant", `suggestion-${chosen}`);
  };
  const take = (n) => {
    const word = words[n], back = word.replaces ?? typed.length;
    area.setRangeText(word.insert ?? word.text, area.selectionStart - back, area.selectionStart, "end");
    close(); paint(); later();
  };
  const later = () => { clearTimeout(timer); timer = setTimeout(check, WAIT_MS); };

  area.addEventListener("input", () => { paint(); later(); complete(); });
  area.addEventListener("scroll", paint);
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); area.form.requestSubmit(); return; }
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); complete(); return; }
    if (list.hidden) return;
    const count = Math.min(words.length, 8);
    if (event.key === "ArrowDown") { chosen = (chosen + 1) % count; render(); }
    else if (event.key === "ArrowUp") { chosen = (chosen + count - 1) % count; render(); }
    else if (event.key === "Tab" || event.key === "Enter") take(chosen);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  frame.classList.add("ready");
  paint();
  check();
}

function coloured(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(WORDS)) {
    parts.push(document.createTextNode(text.slice(end, match.index)));
    const span = document.createElement("span");
    span.className = KINDS[match.slice(1).findIndex((group) => group !== undefined)];
    span.textContent = match[0];
    parts.push(span);
    end = match.index + match[0].length;
  }
  parts.push(document.createTextNode(text.slice(end)));
  return parts;
}
