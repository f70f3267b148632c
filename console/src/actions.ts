// Calls that change something: each asks for a reason, and shows the call that it makes.

import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { errorText, grpcurl, operator, token } from "./calls.js";
import { h } from "./dom.js";

/** What a dialog shows beside its effect. */
interface Shown {
  readonly details?: readonly (HTMLElement | undefined)[];
  /** The call as a line for a shell, if it is not that of grpcurl alone. */
  readonly line?: ((reason: string) => string) | undefined;
}

let asked: { readonly token: string; readonly answer: Promise<boolean> } | undefined;

/** Whether the caller's role may change anything. Asked once for each token. */
function callerMayChange(): Promise<boolean> {
  const current = token.get();
  if (asked?.token !== current) asked = { token: current, answer: operator.listRulesets({}).then((listed) => listed.callerMayChange) };
  return asked.answer;
}

/** Button of a call that changes something. It is disabled once the server has said that the caller's role may change nothing. */
export function changeButton(label: string, click: () => void): HTMLButtonElement {
  const button = h("button", { type: "button", click }, label);
  callerMayChange().then(
    (may) => {
      button.disabled = !may;
      if (!may) button.title = "the role viewer changes nothing; use an operator's token";
    },
    () => (asked = undefined),
  );
  return button;
}

/** Asks for a reason, then runs `act` with it. The server refuses it if the role does not allow it, and the dialog says so. */
export function confirmWithReason<Desc extends DescMessage>(
  title: string,
  effect: string,
  verb: string,
  schema: Desc,
  method: string,
  request: object,
  act: (reason: string) => Promise<void>,
  { details = [], line: lineOf }: Shown = {},
): void {
  const reason = h("input", { id: "reason", required: true, maxlength: 200, autocomplete: "off" });
  const line = h("code", {});
  const problem = h("p", { role: "alert", class: "bad" });
  const describe = (): void => {
    line.textContent = lineOf?.(reason.value) ?? grpcurl(method, schema, create(schema, { ...request, reason: reason.value } as unknown as MessageInitShape<Desc>));
  };
  reason.addEventListener("input", describe);
  describe();
  const submit = (event: Event): void => {
    event.preventDefault();
    problem.textContent = "";
    act(reason.value).then(
      () => dialog.close(),
      (error: unknown) => (problem.textContent = errorText(error)),
    );
  };
  const dialog: HTMLDialogElement = h(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    h(
      "form",
      { submit },
      h("h2", { id: "dialog-title" }, title),
      h("p", {}, effect),
      ...details,
      h("label", { for: "reason" }, "Reason, for the audit log"),
      reason,
      h("div", { class: "call" }, line),
      problem,
      h("div", { class: "controls" }, h("button", { type: "submit" }, verb), h("button", { type: "button", click: () => dialog.close() }, "Back")),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}
