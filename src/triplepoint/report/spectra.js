// The picker of matrices, and tables that sort; runs after the figures are drawn.
(function () {
  var source = document.getElementById("views");
  var place = document.getElementById("figure-density");
  if (source && place) {
    var views = JSON.parse(source.textContent);
    var picker = document.getElementById("picker");
    var thumbs = document.querySelectorAll(".thumb");
    function log10(value) { return Math.log(value) / Math.LN10; }
    function marks(view) {
      var rule = { type: "line", layer: "below", yref: "paper", y0: 0, y1: 1, line: { color: "#8a939d", width: 1.2, dash: "dash" } };
      var muted = window.matchMedia("(prefers-color-scheme: dark)").matches ? "#9aa3ad" : "#5b636d";
      return {
        shapes: view.marks.map(function (mark) { return Object.assign({ x0: mark[1], x1: mark[1] }, rule); }),
        annotations: view.marks.map(function (mark, i) {
          return { text: mark[0], showarrow: false, x: log10(mark[1]), yref: "paper", y: 0, yanchor: "bottom",
                   xanchor: "left", xshift: 4, yshift: 4 + 15 * i, font: { size: 12, color: muted } };
        }),
      };
    }
    function show(index) {
      var view = views[index];
      var change = marks(view);
      change["yaxis.range"] = view.yrange;
      change["xaxis.autorange"] = true;
      var seen = view.x.map(function (x) { return x.length > 0; });
      Plotly.update(place, { x: view.x, y: view.y, showlegend: seen }, change);
      document.getElementById("picked-says").textContent = view.says;
      picker.value = index;
      thumbs.forEach(function (thumb) {
        thumb.setAttribute("aria-selected", String(Number(thumb.dataset.view) === Number(index)));
      });
    }
    picker.addEventListener("change", function () { show(Number(picker.value)); });
    thumbs.forEach(function (thumb) {
      thumb.addEventListener("click", function () { show(Number(thumb.dataset.view)); });
    });
  }
  function key(row, column) { return row.cells[column].dataset.sort; }
  function compare(a, b) {
    var x = Number(a), y = Number(b);
    return isNaN(x) || isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      head.querySelector("button").addEventListener("click", function () {
        var down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(function (other) { other.setAttribute("aria-sort", "none"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        var rows = Array.from(table.tBodies[0].rows);
        var known = rows.filter(function (row) { return key(row, column) !== undefined; });
        var rest = rows.filter(function (row) { return key(row, column) === undefined; });
        known.sort(function (a, b) { return (down ? -1 : 1) * compare(key(a, column), key(b, column)); });
        known.concat(rest).forEach(function (row) { table.tBodies[0].appendChild(row); });
      });
    });
  });
})();
