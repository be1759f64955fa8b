/** A page with buttons that do what a remedy of the API names as a call. */
export type Place = "table" | "subscription" | "connection";

interface Replacement {
  /** As the API words it. */
  said: string;
  /** As it is called here; `{at}` is replaced by the page, where it is another. */
  plain: string;
  place: Place;
  calls: string[];
}

const DDL_CAPTURE = "/connections/{name}/ddl-capture";

const button = (call: string, verb: string, place: Place): Replacement => ({ said: call, plain: `“${verb}”{at}`, place, calls: [call] });

/** A text that begins with the whole of another one comes before it. */
const REPLACEMENTS: readonly Replacement[] = [
  button("POST /subscriptions/{name}/tables/{table_id}/retries", "Try again", "table"),
  button("POST /subscriptions/{name}/tables/{table_id}/reloads", "Reload", "table"),
  button("POST /subscriptions/{name}/tables/{table_id}/approvals", "Approve", "table"),
  button("POST /subscriptions/{name}/reloads", "Reload all", "subscription"),
  {
    said: "set desired_state to running",
    plain: "use “Try again”{at}",
    place: "subscription",
    calls: ['PATCH /subscriptions/{name} {"desired_state": "running"}'],
  },
  {
    said: "with PATCH /connections/{name},",
    plain: "on the connection's page,",
    place: "connection",
    calls: ["PATCH /connections/{name}"],
  },
  {
    said: `PUT ${DDL_CAPTURE}, as a superuser of the source, or DELETE it.`,
    plain: "Use “Install”{at}, as a superuser of the source, or “Remove”.",
    place: "connection",
    calls: [`PUT ${DDL_CAPTURE}`, `DELETE ${DDL_CAPTURE}`],
  },
  button(`PUT ${DDL_CAPTURE}`, "Install", "connection"),
  button(`DELETE ${DDL_CAPTURE}`, "Remove", "connection"),
];

/** A remedy with buttons in place of the calls that they make; other remedies stay as they are. `here`: the page that it is read on. */
export function plainRemedy(remedy: string, here?: Place): { words: string; calls: string[] } {
  let words = remedy;
  const calls: string[] = [];
  for (const replacement of REPLACEMENTS) {
    if (!words.includes(replacement.said)) continue;
    words = words.replaceAll(
      replacement.said,
      replacement.plain.replace("{at}", replacement.place === here ? "" : ` on the ${replacement.place}'s page`),
    );
    calls.push(...replacement.calls);
  }
  return { words, calls };
}
