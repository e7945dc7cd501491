// Draws the figures of a report.
(() => {
  const given = JSON.parse(document.getElementById("figures").textContent);
  const draw = () => {
    for (const [id, figure] of Object.entries(given)) {
      figures.draw(document.getElementById(id), figure);
    }
  };
  draw();
  figures.onSurroundings(draw);
})();
