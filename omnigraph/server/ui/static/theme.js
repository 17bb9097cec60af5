// The theme that was chosen, set before the page is drawn.
(() => {
  const key = "omnigraph-theme";
  const stored = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const chosen = stored();
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
      const next = now === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try { localStorage.setItem(key, next); } catch { /* the choice lasts for this page */ }
    });
  });
})();
