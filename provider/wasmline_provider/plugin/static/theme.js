// Follows Airflow's colour mode. A classic script, run before the first paint: a module would be late.
// Airflow keeps the mode in localStorage ("light", "dark" or "system") and tells other documents by `storage` events.
"use strict";

(() => {
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage is blocked
    }
  }

  function follow() {
    const mode = stored();
    const system = prefersDark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = mode === "dark" || mode === "light" ? mode : system;
  }

  addEventListener("storage", follow);
  prefersDark.addEventListener("change", follow);
  follow();
})();
