// Before anything is painted: the reader's scheme, or the one chosen here.
(() => {
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("pnnx-serve.theme");
  const apply = () => {
    document.documentElement.dataset.theme = chosen() ?? (wanted.matches ? "dark" : "light");
  };
  wanted.addEventListener("change", apply);
  apply();
  globalThis.toggleTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("pnnx-serve.theme", next);
    apply();
    return next;
  };
})();
