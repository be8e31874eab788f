// Draws every figure whose JSON the page carries; nothing is loaded from elsewhere.
(function () {
  var config = { displaylogo: false, responsive: true, modeBarButtons: [["resetScale2d", "toImage"]] };
  var plots = [];
  document.querySelectorAll("script[data-figure]").forEach(function (source) {
    var place = document.getElementById("figure-" + source.dataset.figure);
    var figure = JSON.parse(source.textContent);
    Plotly.newPlot(place, figure.data, figure.layout, config);
    plots.push(place);
  });
  // paper is narrower than the window: draw for it, so that text keeps its size, then back
  window.addEventListener("beforeprint", function () {
    plots.forEach(function (place) { Plotly.relayout(place, { width: 690, autosize: false }); });
  });
  window.addEventListener("afterprint", function () {
    plots.forEach(function (place) { Plotly.relayout(place, { width: null, autosize: true }); });
  });
})();
