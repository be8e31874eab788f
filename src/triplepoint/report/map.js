// Draws the validation curves of the cell that is pointed at or picked; runs after the figures are drawn.
(function () {
  document.querySelectorAll("details").forEach(function (details) {
    // what is drawn while folded away has no width
    details.addEventListener("toggle", function () {
      details.querySelectorAll(".js-plotly-plot").forEach(function (place) { Plotly.Plots.resize(place); });
    });
  });
  var source = document.getElementById("map-views");
  if (!source) { return; }
  var views = JSON.parse(source.textContent);
  var GREY = "#8a929b";
  function line(entry, colour, seen) {
    var curve = views.curves[entry[0]];
    var own = entry[2];
    var group = own ? "candidate" : "baseline";
    var shown = !seen[group];
    seen[group] = true;
    return {
      type: "scatter", mode: "lines", x: curve[0], y: curve[1], name: entry[1].replace(/, seed [^,]*$/, ""), legendgroup: group,
      showlegend: shown, line: { color: own ? colour : GREY, width: own ? 2 : 1.6 }, text: entry[1],
      hovertemplate: entry[1] + "<br>step %{x}: %{y:.3f}<extra></extra>",
    };
  }
  function best(trace) {
    var at = -1;
    trace.y.forEach(function (value, i) { if (value !== null && (at < 0 || value < trace.y[at])) { at = i; } });
    if (at < 0) { return null; }
    return {
      type: "scatter", mode: "markers", x: [trace.x[at]], y: [trace.y[at]], showlegend: false, legendgroup: trace.legendgroup,
      marker: { size: 8, color: trace.line.color, symbol: "diamond" }, hovertemplate: "best: step %{x}, %{y:.3f}<extra></extra>",
    };
  }
  function plateau(view, traces) {
    var last = Math.max.apply(null, traces.map(function (t) { return t.x[t.x.length - 1]; }));
    return { type: "scatter", mode: "lines", x: [0, last], y: [view.plateau, view.plateau], name: "unigram plateau",
             line: { color: GREY, width: 1, dash: "dot" }, hoverinfo: "skip" };
  }
  // from the lowest point to the highest after the first tenth: the fall from the start would flatten the rest
  function reach(view, traces) {
    var all = [], late = view.plateau === null ? [] : [view.plateau];
    traces.forEach(function (trace) {
      var last = trace.x[trace.x.length - 1];
      trace.y.forEach(function (value, i) {
        if (value === null) { return; }
        all.push(value);
        if (trace.x[i] >= last / 10) { late.push(value); }
      });
    });
    if (!all.length || !late.length) { return null; }
    var low = Math.min.apply(null, all), high = Math.max.apply(null, late);
    var pad = 0.06 * (high - low) || 0.1;
    return [low - pad, high + pad];
  }
  function show(block, number) {
    var view = views.effects[number];
    if (!view) { return; }
    var place = block.querySelector(".curves .js-plotly-plot");
    var seen = {};
    var traces = view.lines.map(function (entry) { return line(entry, place.layout.meta.colour, seen); });
    var marks = traces.map(best).filter(Boolean);
    if (view.plateau !== null) { marks.push(plateau(view, traces)); }
    place.layout.yaxis.range = reach(view, traces);
    place.layout.yaxis.autorange = !place.layout.yaxis.range;
    Plotly.react(place, traces.concat(marks), place.layout);
    block.querySelector("select").value = number;
  }
  document.querySelectorAll(".candidate").forEach(function (block) {
    var select = block.querySelector("select");
    if (!select) { return; }
    select.addEventListener("change", function () { show(block, select.value); });
    block.querySelectorAll(".phase .js-plotly-plot").forEach(function (place) {
      ["plotly_hover", "plotly_click"].forEach(function (event) {
        place.on(event, function (data) {
          var mark = data.points[0].customdata;
          if (mark) { show(block, mark[0]); }
        });
      });
    });
    show(block, select.value);
  });
})();
