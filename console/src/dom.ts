// Elements of the page. All text becomes text nodes: markup in a name is never parsed.

type Child = Node | string | number | null | undefined | false;
type Attributes = Readonly<Record<string, string | number | boolean | ((event: Event) => void) | undefined>>;

const SVG = "http://www.w3.org/2000/svg";

/** Characters that have no form of their own: controls, and those that change the direction of text. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text of others, with a visible escape for each character that has no form of its own. */
export const visible = (text: string): string =>
  text.replace(INVISIBLE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

function fill(element: Element, attributes: Attributes, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else if (value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(String(child)));
  }
}

/** An element. A function among the attributes is a listener of the event of that name. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/** An element of a drawing. */
export function svg(tag: string, attributes: Attributes = {}, ...children: readonly Child[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  fill(element, attributes, children);
  return element;
}

/** Column of a table; numbers are aligned at the right. */
export interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => Child;
  readonly isNumber?: boolean;
}

/** A table that scrolls sideways in itself on a narrow screen. `none` is shown without rows. */
export function table<Row>(label: string, columns: readonly Column<Row>[], rows: readonly Row[], none: string): HTMLElement {
  if (rows.length === 0) return h("p", { class: "none" }, none);
  const kind = (column: Column<Row>): string => (column.isNumber === true ? "number" : "");
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.title)))),
      h(
        "tbody",
        {},
        ...rows.map((row) => h("tr", {}, ...columns.map((column) => h("td", { class: kind(column) }, column.cell(row))))),
      ),
    ),
  );
}

/** A titled part of a view, with the calls behind its figures. */
export function panel(title: string, calls: readonly HTMLElement[], ...children: readonly Child[]): HTMLElement {
  return h("section", { class: "panel" }, h("header", {}, h("h2", {}, title), ...calls), ...children);
}

/** A figure with its name. */
export const figure = (name: string, value: string | number, note = ""): HTMLElement =>
  h("div", { class: "figure" }, h("dt", {}, name), h("dd", {}, value, note !== "" && h("small", {}, note)));
