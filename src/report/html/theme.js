"use strict";
// Light or dark, on the pages of jobs and on the list of them.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const themes = ["system", "light", "dark"];
  // A file opened from disk may have no store.
  const stored = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("expctl-theme");
      localStorage.setItem("expctl-theme", value);
    } catch { /* for this view only */ }
    return null;
  };
  const setTheme = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  let theme = themes.includes(stored()) ? stored() : "system";
  setTheme(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    setTheme(theme);
    stored(theme);
  });
  // Paper is light.
  addEventListener("beforeprint", () => setTheme("light"));
  addEventListener("afterprint", () => setTheme(theme));
})();
