// Draws figures by Plotly, in the colours of the page around them. No markup is made of texts.
const figures = (() => {
  const narrow = matchMedia("(max-width: 760px)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (slot) => css(slot < 0 ? "--muted" : `--s${slot}`);
  const config = { displayModeBar: false, responsive: true };

  const axis = (given) => ({
    gridcolor: css("--grid"), linecolor: css("--rule"), zeroline: false,
    ...given, title: { ...given.title, font: { size: 12, color: css("--ink-2") }, standoff: 6 },
  });

  const trace = ({ slot, ...given }) => ({
    ...given,
    line: { ...given.line, color: colour(slot) },
    marker: { ...given.marker, color: colour(slot) },
    fillcolor: given.fill ? `${colour(slot)}26` : undefined,
  });

  // The dot is a label of its own: one in colour within a text would be an inline style.
  const beside = (y, text, xshift, ink) => ({
    x: 1, xref: "paper", xanchor: "left", xshift, y, yanchor: "middle", showarrow: false,
    align: "left", font: { size: 12, color: ink }, text,
  });
  const label = ({ y, text, slot }) => [
    beside(y, "●", 6, colour(slot)), beside(y, text, 20, css("--ink")),
  ];

  // Names of up to 22 characters fit into 190 pixels; shorter ones leave more to the lines.
  const room = (labels) => Math.min(190, 36 + 7 * Math.max(...labels.map(({ text }) => text.length)));

  const mark = (x) => ({
    type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", layer: "below",
    line: { color: css("--mark"), width: 1, dash: "dot" },
  });

  const layout = ({ layout: given, labels, marks }) => ({
    ...given,
    xaxis: { showgrid: false, ...axis(given.xaxis) },
    yaxis: { fixedrange: true, ...axis(given.yaxis) },
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink-2") },
    margin: { l: 62, r: labels.length && !narrow.matches ? room(labels) : 10, t: 8, b: 42 },
    annotations: narrow.matches ? [] : labels.flatMap(label),
    shapes: marks.map(mark),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    dragmode: narrow.matches ? false : "zoom",
    hoverlabel: {
      bgcolor: css("--card"), bordercolor: css("--rule"), align: "left",
      font: { family: getComputedStyle(document.body).fontFamily, color: css("--ink") },
    },
  });

  const draw = (element, figure) => {
    element.style.height = `${figure.layout.height}px`;
    return Plotly.react(element, figure.data.map(trace), layout(figure), config);
  };

  // Calls back when the surroundings of figures are others.
  const onSurroundings = (redraw) => {
    dark.addEventListener("change", redraw);
    narrow.addEventListener("change", redraw);
  };

  return { draw, onSurroundings };
})();
