/** A page with buttons that do what a remedy of the API names as a call. */
export type Place = "table" | "subscription" | "connection";

interface Replacement {
  /** As the API words it. */
  said: string;
  /** As it is called here; `{at}` is replaced by the page, where it is another. */
  plain: string;
  place: Place;
  /** The operation of the API, by its stable name. */
  action: string;
  /** As it is called where its button is shown with the remedy, if that has another name. */
  beside?: string;
  calls: string[];
}

const DDL_CAPTURE = "/connections/{name}/ddl-capture";

const button = (call: string, verb: string, place: Place, action: string): Replacement => ({
  said: call,
  plain: `“${verb}”{at}`,
  place,
  action,
  calls: [call],
});

/** A text that begins with the whole of another one comes before it. */
const REPLACEMENTS: readonly Replacement[] = [
  button("POST /subscriptions/{name}/tables/{table_id}/retries", "Try again", "table", "table.retry"),
  button("POST /subscriptions/{name}/tables/{table_id}/reloads", "Reload", "table", "table.reload"),
  button("POST /subscriptions/{name}/tables/{table_id}/approvals", "Approve", "table", "table.approve"),
  button("POST /subscriptions/{name}/reloads", "Reload all", "subscription", "subscription.reload"),
  {
    said: "set desired_state to running",
    plain: "use “Try again”{at}",
    place: "subscription",
    action: "subscription.resume",
    beside: "use “Resume”",
    calls: ['PATCH /subscriptions/{name} {"desired_state": "running"}'],
  },
  {
    said: "with PATCH /connections/{name},",
    plain: "on the connection's page,",
    place: "connection",
    action: "connection.change",
    calls: ["PATCH /connections/{name}"],
  },
  {
    said: `PUT ${DDL_CAPTURE}, as a superuser of the source, or DELETE it.`,
    plain: "Use “Install”{at}, as a superuser of the source, or “Remove”.",
    place: "connection",
    action: "ddl_capture.install",
    calls: [`PUT ${DDL_CAPTURE}`, `DELETE ${DDL_CAPTURE}`],
  },
  button(`PUT ${DDL_CAPTURE}`, "Install", "connection", "ddl_capture.install"),
  button(`DELETE ${DDL_CAPTURE}`, "Remove", "connection", "ddl_capture.remove"),
];

/**
 * A remedy with buttons in place of the calls that they make; other remedies stay as they are. `here`: the page that it is read on;
 * `beside`: the operations whose buttons are shown with it.
 */
export function plainRemedy(remedy: string, here?: Place, beside: readonly string[] = []): { words: string; calls: string[] } {
  let words = remedy;
  const calls: string[] = [];
  for (const replacement of REPLACEMENTS) {
    if (!words.includes(replacement.said)) continue;
    const { said, place, action } = replacement;
    const isBeside = beside.includes(action);
    const plain = (isBeside ? replacement.beside : undefined) ?? replacement.plain;
    words = words.replaceAll(said, plain.replace("{at}", isBeside || place === here ? "" : ` on the ${place}'s page`));
    calls.push(...replacement.calls);
  }
  return { words, calls };
}
