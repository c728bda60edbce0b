/*
 * Draws the status page without a browser, on elements that only keep text, and
 * prints what it shows of an upstream, as JSON: the verdict, and tiles by title.
 *
 *     node t/page/draw.js PAGE.html UPSTREAM < status.json
 */

const fs = require("fs");

const [html, name] = process.argv.slice(2);
const status = JSON.parse(fs.readFileSync(0, "utf8"));

/* all of the scripts but the last line, which asks nginx for the status */

const script = fs.readFileSync(html, "utf8").match(/<script>([^]*)<\/script>/)[1]
  .replace(/^@include (\S+)\n/mg, (all, file) =>
    fs.readFileSync(html.replace(/[^/]*$/, file), "utf8"))
  .replace(/\npoll\(\);\s*$/, "\n");

class Element {
  constructor() {
    Object.assign(this, { children: [], dataset: {}, style: {}, own: "",
      options: [], value: "", classList: { toggle() {} }, parts: {} });
  }
  get textContent() {
    return this.own + this.children.map((c) => c.textContent || c).join(" ");
  }
  set textContent(text) { this.own = text; this.children = []; }
  get lastChild() { return this.children[this.children.length - 1]; }
  get firstChild() { return this.children[0]; }
  get rows() { return this.children; }
  get cells() { return this.children; }
  get tBodies() { return [this.part("body")]; }
  get tHead() {
    const head = this.part("head");
    if (!head.firstChild) head.append(new Element());
    return head;
  }
  part(x) { return this.parts[x] = this.parts[x] || new Element(); }
  append(...list) {
    this.children.push(...list);
    for (const e of list) if (e instanceof Element) e.parent = this;
  }
  appendChild(e) { this.append(e); return e; }
  insertBefore(e) { return this.appendChild(e); }
  replaceChildren(...list) { this.children = []; this.append(...list); }
  remove() {
    this.parent.children = this.parent.children.filter((e) => e !== this);
  }
  setAttribute() {}
  removeAttribute() {}
  addEventListener() {}
  getContext() {
    return new Proxy({}, { get: () => () => ({ width: 1 }), set: () => true });
  }
}

const ids = {};
const document = { getElementById: (id) => ids[id] = ids[id] || new Element(),
  createElement: () => new Element(), querySelectorAll: () => [],
  addEventListener() {}, body: new Element(), documentElement: new Element() };

document.getElementById("by").value = "models";

const draw = new Function("document", "location", "addEventListener",
  "getComputedStyle", "Option", "devicePixelRatio", "upstream", script
  + "\nreturn (s) => { take(s); $('upstream').value = upstream; draw(); };")
  (document, { search: "", href: "http://a/", origin: "http://a", hash: "" },
   () => {}, () => ({ getPropertyValue: () => "#000" }), class {}, 1, name);

/* twice: as it is first seen, and a second later without any traffic */

draw(status);
draw({ ...structuredClone(status),
  timestamp: new Date(Date.parse(status.timestamp) + 1000).toISOString() });

const tiles = (id) => Object.fromEntries(document.getElementById(id).children
  .map((e) => [e.dataset.title, e.children.slice(1).map((c) => c.textContent)]));

console.log(JSON.stringify({ verdict: ids.verdict.textContent,
  tiles: tiles("tiles"), shadow: tiles("shadow") }));
