// Follows the reader's choice of a light or dark page; paper is always light. Runs after the figures are drawn.
(function () {
  var night = window.matchMedia("(prefers-color-scheme: dark)");
  var DAY = { ink: "#22262b", muted: "#5b636d", grid: "#e9ebee", edge: "#b9bfc6", paper: "#ffffff" };
  var NIGHT = { ink: "#e4e7ea", muted: "#9aa3ad", grid: "#2a3037", edge: "#565f69", paper: "#15181c" };
  function colours(layout, tone) {
    var change = {
      "paper_bgcolor": tone.paper, "plot_bgcolor": tone.paper, "font.color": tone.ink,
      "hoverlabel.bgcolor": tone.paper, "hoverlabel.font.color": tone.ink,
    };
    Object.keys(layout).forEach(function (name) {
      if (!/^[xy]axis\d*$/.test(name)) { return; }
      ["gridcolor", "zerolinecolor"].forEach(function (part) { change[name + "." + part] = tone.grid; });
      if (!layout[name].ticks) { return; }
      ["linecolor", "tickcolor"].forEach(function (part) { change[name + "." + part] = tone.edge; });
    });
    (layout.annotations || []).forEach(function (_, i) {
      change["annotations[" + i + "].font.color"] = tone.muted;
    });
    if (layout.sliders) {
      change["sliders[0].font.color"] = tone.muted;
      change["sliders[0].tickcolor"] = tone.edge;
      change["sliders[0].bgcolor"] = tone.edge;
      change["sliders[0].bordercolor"] = tone.edge;
    }
    return change;
  }
  function paint(dark) {
    document.querySelectorAll(".js-plotly-plot").forEach(function (place) {
      Plotly.relayout(place, colours(place.layout, dark ? NIGHT : DAY));
      var maps = [];
      place.data.forEach(function (trace, i) { if (trace.type === "heatmap") { maps.push(i); } });
      if (maps.length) { Plotly.restyle(place, { reversescale: dark }, maps); }
    });
  }
  paint(night.matches);
  night.addEventListener("change", function (event) { paint(event.matches); });
  window.addEventListener("beforeprint", function () { paint(false); });
  window.addEventListener("afterprint", function () { paint(night.matches); });
})();
