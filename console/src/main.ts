// The page: navigation, the token, and the view that the address names.

import { errorText, isForbidden, token } from "./calls.js";
import { h } from "./dom.js";
import { time } from "./format.js";
import { live } from "./live.js";
import { showMatches } from "./matches.js";
import { showNow } from "./now.js";
import { showRules } from "./rules.js";
import { showWhy } from "./why.js";

type View = (view: HTMLElement, signal: AbortSignal, parameters: URLSearchParams) => void;

const VIEWS: readonly (readonly [name: string, title: string, show: View])[] = [
  ["now", "Now", showNow],
  ["why", "Why?", showWhy],
  ["rules", "Rules", showRules],
  ["matches", "Matches", showMatches],
];

const main = h("main", { id: "view", tabindex: -1 });
const status = h("p", { role: "status", class: "status" });
const signIn = h("div");
const links = VIEWS.map(([name, title]) => h("a", { href: `#${name}` }, title));
let stop = new AbortController();

function route(): void {
  const [name = "", query = ""] = location.hash.slice(1).split("?");
  const index = Math.max(0, VIEWS.findIndex(([it]) => it === name));
  const [, title, show] = VIEWS[index] ?? VIEWS[0]!;
  links.forEach((link, at) => (at === index ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")));
  document.title = `${title} – fireteam console`;
  stop.abort();
  stop = new AbortController();
  show(main, stop.signal, new URLSearchParams(query));
}

function askForToken(error: unknown): void {
  const field = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
  const submit = (event: Event): void => {
    event.preventDefault();
    token.set(field.value.trim());
    signIn.replaceChildren();
    live.restart();
    route();
  };
  const hint = isForbidden(error) ? "The token's role is neither operator nor viewer." : errorText(error);
  signIn.replaceChildren(
    h(
      "form",
      { class: "panel sign-in", submit },
      h("h2", {}, "Operator's token"),
      h("p", {}, `${hint} The token stays in this tab and is sent with each call.`),
      h("label", { for: "token" }, "Token"),
      field,
      h("button", { type: "submit" }, "Use token"),
    ),
  );
  field.focus();
}

live.onTokenNeeded = askForToken;
live.listeners.add(() => {
  const { latest, problem } = live;
  status.classList.toggle("bad", problem !== "");
  status.textContent = problem === "" ? `live, ${time(latest?.atUnixMs)}` : problem;
});
live.followVisibility();
document.body.replaceChildren(
  h("a", { href: "#view", class: "skip", click: (event: Event) => (event.preventDefault(), main.focus()) }, "Skip to content"),
  h("header", { class: "top" }, h("strong", {}, "fireteam"), h("nav", { "aria-label": "Views" }, ...links), status),
  signIn,
  main,
);
addEventListener("hashchange", route);
route();
live.restart();
