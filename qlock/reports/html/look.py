"""How the page looks, in light, in dark and on paper, and the few lines that sort its tables.

The page works without the script: it then only does not sort. Does not live here: what is on the page.
"""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--paper:#ffffff;--ink:#1b1f24;--quiet:#57606a;--line:#d0d7de;--soft:#f6f8fa;
--a:#0b5cad;--good:#116329;--bad:#a40e26;--open:#7d4e00;--noise:#f2d9a8;
--eos:#3b7dbf;--stop:#7fb2de;--budget:#d1721b;--context:#8a3ffc;--error:#a40e26}
@media (prefers-color-scheme:dark){:root{--paper:#0f1419;--ink:#e6edf3;--quiet:#9aa5b1;--line:#3a434d;--soft:#1a2129;
--a:#6cb6ff;--good:#57d377;--bad:#ff8182;--open:#e3b341;--noise:#5c4a1e;
--eos:#4f94d8;--stop:#2b5f92;--budget:#e5883a;--context:#b18aff;--error:#ff6b6b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;line-height:1.3;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem;padding-top:1rem;
border-top:2px solid var(--line)}h3{font-size:1.05rem;margin:1.5rem 0 .5rem}h4{font-size:1rem;margin:.75rem 0 .25rem}
a{color:var(--a)}ul{padding-left:1.2rem;margin:.5rem 0}
.state{border-left:.4rem solid var(--quiet);background:var(--soft);padding:.6rem .8rem;margin:.5rem 0}
.state ul{margin:.25rem 0 0}
.valid{border-color:var(--good)}.invalid{border-color:var(--bad)}.incomplete{border-color:var(--open)}
.valid strong{color:var(--good)}.invalid strong{color:var(--bad)}.incomplete strong{color:var(--open)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:1rem;align-items:start}
figure{margin:0;padding:.6rem;border:1px solid var(--line);border-radius:.4rem;break-inside:avoid}
figure h4{margin:0 0 .25rem}figcaption,.muted{color:var(--quiet);font-size:.875rem}
svg{display:block;width:100%;max-width:34rem;height:auto}
.word{fill:var(--ink);font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.word.muted{fill:var(--quiet);font-size:11px}.word.strong{font-weight:600}
.grid{stroke:var(--line);stroke-width:1}.zero{stroke:var(--quiet);stroke-width:1.5}
.bar{stroke:var(--a);stroke-width:2.5}.dot{fill:var(--a);stroke:var(--paper);stroke-width:1}
.cross{stroke:var(--bad);stroke-width:2.5}.front{stroke:var(--a);stroke-width:1;stroke-dasharray:2 3}
.margin{stroke:var(--bad);stroke-width:2;stroke-dasharray:4 3}.noise{fill:var(--noise)}.column{fill:var(--a)}
.ending{stroke:var(--paper);stroke-width:1}.eos{fill:var(--eos)}.stop{fill:var(--stop)}.budget{fill:var(--budget)}
.context{fill:var(--context)}.error{fill:var(--error)}
.wide{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{border-bottom:1px solid var(--line);padding:.3rem .5rem;text-align:left;vertical-align:top;max-width:28rem}
td{min-width:3rem}.long{overflow-wrap:break-word;min-width:14rem}.short{white-space:nowrap}.ends{display:block}
.good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}.good,.bad,.open{font-weight:600}
code{font:.9em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--soft);padding:0 .2em}
th{white-space:nowrap;background:var(--soft)}.number{text-align:right;white-space:nowrap}
th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible,summary:focus-visible,.wide:focus-visible,
pre:focus-visible,a:focus-visible{outline:3px solid var(--a);outline-offset:1px}
th[aria-sort=ascending] button::after{content:" \\25B2"}th[aria-sort=descending] button::after{content:" \\25BC"}
details.part{margin:1rem 0;border:1px solid var(--line);border-radius:.4rem;padding:.4rem .8rem}
summary{cursor:pointer;padding:.25rem 0}details.part>summary{font-weight:600}
.flip{border-top:1px solid var(--line)}.flip>summary span{margin-left:.6rem}
.both{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(20rem,100%),1fr));gap:.8rem}
.both p{margin:.25rem 0}
pre{margin:0 0 .6rem;padding:.6rem;background:var(--soft);white-space:pre-wrap;overflow:auto;max-height:24rem;
font:.85rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
footer{margin-top:2rem;border-top:1px solid var(--line);color:var(--quiet);font-size:.875rem}
@media print{:root{--paper:#fff;--ink:#000;--quiet:#444;--line:#bbb;--soft:#f4f4f4;--a:#0b5cad;--good:#116329;
--bad:#a40e26;--open:#7d4e00;--noise:#f2d9a8;--eos:#3b7dbf;--stop:#7fb2de;--budget:#d1721b;--context:#8a3ffc;
--error:#a40e26}
body{max-width:none;padding:0;font-size:10pt}*{print-color-adjust:exact}.wide{overflow:visible}
table{font-size:8pt}td,th,.number,.short{white-space:normal;padding:.15rem .3rem}.long{min-width:0}tr,figure{break-inside:avoid}
.plots{grid-template-columns:1fr 1fr}pre{max-height:none}nav{display:none}}
"""

SCRIPT = """
"use strict";
for (const button of document.querySelectorAll("table.sorts th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
    const falling = head.getAttribute("aria-sort") === "ascending", at = head.cellIndex;
    const isNumber = head.classList.contains("number");
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = row => isNumber ? row.cells[at].dataset.key : row.cells[at].textContent;
    const rows = Array.from(body.rows);
    rows.sort((one, other) => {
      const a = key(one), b = key(other);
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = isNumber ? Number(a) - Number(b) : a.localeCompare(b);
      return falling ? -order : order;
    });
    body.append(...rows);
  });
}
const opened = [];
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details.part:not([open])")) { part.open = true; opened.push(part); }
});
addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; });
"""
