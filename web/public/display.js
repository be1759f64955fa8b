// Runs before anything is painted, so that the chosen colours are there from the start.
try {
  const theme = localStorage.getItem("penstock-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch (_) {
  // Without storage the system's colours stay.
}
