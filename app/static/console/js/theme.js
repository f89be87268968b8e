// Set the theme before the first paint: the chosen one, or that of the system.
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
