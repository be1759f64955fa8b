/** The settings of a subscription: what each means, how it is entered, and when a change takes effect. */

export type Effect = "at once" | "next start";
export type Value = number | string | boolean | null;

interface Shared {
  /** Its path in the subscription. */
  path: readonly string[];
  label: string;
  means: string;
  effect: Effect;
}

export interface NumberSetting extends Shared {
  kind: "number";
  unit: string;
  /** What the API's number is divided by for people. */
  per: number;
  /** What an empty entry means. */
  empty: string;
}

export interface ChoiceSetting extends Shared {
  kind: "choice";
  choices: { value: string; means: string }[];
}

export interface SwitchSetting extends Shared {
  kind: "switch";
}

export type Setting = NumberSetting | ChoiceSetting | SwitchSetting;

export interface SettingGroup {
  title: string;
  settings: Setting[];
}

const MIB = 1024 * 1024;
const DEFAULT = "the default";
const MEASURED = "chosen by measured cost";

const number = (
  path: string,
  label: string,
  unit: string,
  per: number,
  effect: Effect,
  means: string,
  empty: string = DEFAULT,
): NumberSetting => ({
  kind: "number",
  path: path.split("."),
  label,
  unit,
  per,
  effect,
  means,
  empty,
});
const share = (path: string, label: string, means: string): NumberSetting => number(path, label, "%", 0.01, "at once", means);
const choice = (path: string, label: string, effect: Effect, means: string, choices: [string, string][]): ChoiceSetting => ({
  kind: "choice",
  path: path.split("."),
  label,
  effect,
  means,
  choices: choices.map(([value, one]) => ({ value, means: one })),
});

export const SETTINGS: SettingGroup[] = [
  {
    title: "Freshness",
    settings: [
      number(
        "freshness.goal_seconds",
        "Goal",
        "s",
        1,
        "at once",
        "Further behind the source than this, it is called late in this console. Nothing else follows from it.",
      ),
    ],
  },
  {
    title: "Source's log",
    settings: [
      number(
        "capture.slot_budget_bytes",
        "Budget",
        "MiB",
        MIB,
        "at once",
        "Log that the source may hold back for this subscription. The shares below are of this, or of what the source itself leaves where that is less.",
      ),
      share("capture.guard.warn_share", "Warn from", "An event warns, and this console calls the subscription at risk."),
      share(
        "capture.guard.persist_share",
        "Make the queue durable from",
        "Where the queue's mode is auto: the source can then let log go sooner.",
      ),
      share("capture.guard.stop_copies_share", "Stop copies from", "Copies and reloads end until there is room again; they hold log too."),
      share(
        "capture.guard.name_transaction_share",
        "Name the holder from",
        "An event names the open transaction on the source that holds the log.",
      ),
      share(
        "capture.guard.drop_slot_share",
        "Drop the slot from",
        "The last resort to keep the source's disk from filling: all tables have to be copied again after it.",
      ),
      {
        kind: "switch",
        path: ["capture", "guard", "drop_slot"],
        label: "The slot may be dropped",
        effect: "at once",
        means: "If not, only the source's own max_slot_wal_keep_size keeps its disk from filling.",
      },
      choice("capture.origin", "Changes followed", "next start", "Rows that were replicated stay as they are.", [
        ["any", "all changes"],
        ["none", "only the source's own, none that came to it by replication, so that nothing goes round in a circle; needs PostgreSQL 16"],
      ]),
    ],
  },
  {
    title: "Batches",
    settings: [
      number(
        "batch.max_age_ms",
        "Oldest",
        "ms",
        1,
        "next start",
        "A batch is closed at the first of these three limits. A larger one costs less for each row; a smaller one is fresher.",
      ),
      number("batch.max_transactions", "Most transactions", "", 1, "next start", "Source transactions in one batch."),
      number("batch.max_bytes", "Largest", "MiB", MIB, "next start", "Log in one batch."),
      number(
        "batch.small_rows",
        "Small up to",
        "rows",
        1,
        "next start",
        "Smaller batches are prepared in the engine's process, larger ones by Spark. 0: all by Spark.",
        MEASURED,
      ),
      number("batch.tasks", "Parallel tasks", "", 1, "next start", "Of a batch that Spark prepares.", MEASURED),
    ],
  },
  {
    title: "Apply",
    settings: [
      choice(
        "apply.mode",
        "Transactions on the target",
        "next start",
        "How the source's transactions become transactions of the target. The last two need a PostgreSQL target.",
        [
          ["auto", "net changes or groups, whichever costs less"],
          ["batch", "the net changes of a whole batch in one"],
          ["grouped", "some consecutive ones in one, change by change"],
          ["transactional", "each in one of its own, in commit order"],
        ],
      ),
      choice(
        "apply.policy",
        "Rows changed by several",
        "next start",
        "What a connection does about rows that transactions of other connections change as well.",
        [
          ["pessimistic", "it waits until all earlier transactions are committed"],
          ["optimistic", "it goes ahead; those that come to wait for each other are rolled back and done again in order"],
        ],
      ),
      choice("apply.visibility", "A batch becomes visible", "next start", "", [
        ["atomic", "all at once"],
        ["relaxed", "in parts, one shortly after the other; needs a PostgreSQL target with prepared transactions"],
      ]),
      number(
        "apply.lanes",
        "Connections",
        "",
        1,
        "next start",
        "That write to the target beside each other, where transactions are not merged or parts are shown.",
        MEASURED,
      ),
      number("apply.group_size", "Transactions in a group", "", 1, "next start", "With groups only.", MEASURED),
    ],
  },
  {
    title: "Queue",
    settings: [
      choice("queue.mode", "What is confirmed to the source", "at once", "Whether log can go from the source before the target has it.", [
        ["memory", "what the target has"],
        ["persist", "what is safe in the engine's files, which are a part of your data then"],
        ["auto", "what the target has, or what is safe in files while the source's log needs it"],
      ]),
      number(
        "queue.budget_bytes",
        "Disk space",
        "MiB",
        MIB,
        "next start",
        "Of the queue's files. Only transactions that are open on the source outgrow it.",
      ),
    ],
  },
  {
    title: "Changes of structure",
    settings: [
      choice("schema_changes.policy", "A table's structure changes", "next start", "", [
        ["apply", "the target follows"],
        ["ask", "the table waits until the exact statements are approved"],
        ["ignore", "the target stays as it is; what cannot be left out parks the table"],
      ]),
    ],
  },
  {
    title: "Copies",
    settings: [
      number("copies.max_rows_per_second", "Rows a second, at most", "", 1, "at once", "Of all copies and reloads together.", "no limit"),
      number("copies.max_time_share", "Time of reading", "%", 0.01, "at once", "For the rest of the time the source is left alone."),
      {
        kind: "switch",
        path: ["copies", "give_way"],
        label: "Give way",
        effect: "at once",
        means:
          "Read for less of the time, down to a tenth, while commits to other tables take longer to become readable than without copies.",
      },
    ],
  },
];

/** The value at a setting's place; undefined where there is none. */
export function settingValue(whole: unknown, path: readonly string[]): Value | undefined {
  let found = whole;
  for (const name of path) {
    if (found === null || typeof found !== "object") return undefined;
    found = (found as Record<string, unknown>)[name];
  }
  return found === null || typeof found === "number" || typeof found === "string" || typeof found === "boolean" ? found : undefined;
}

/** What a PATCH is given to change the values at these places. */
export function patchOf(changes: { path: readonly string[]; value: Value }[]): Record<string, unknown> {
  const whole: Record<string, unknown> = {};
  for (const { path, value } of changes) {
    let place = whole;
    path.slice(0, -1).forEach((name) => {
      place[name] ??= {};
      place = place[name] as Record<string, unknown>;
    });
    const last = path.at(-1);
    if (last !== undefined) place[last] = value;
  }
  return whole;
}

/** A value as people read it. */
export function valueWords(setting: Setting, value: Value | undefined): string {
  if (setting.kind === "switch") return value === true ? "yes" : "no";
  if (value == null) return setting.kind === "number" ? setting.empty : DEFAULT;
  if (setting.kind === "number" && typeof value === "number") return `${shown(setting, value)} ${setting.unit}`.trim();
  return String(value);
}

/** A number as its field shows it; digits that come of dividing are cut. */
export const shown = (setting: NumberSetting, value: number): string => String(Number((value / setting.per).toFixed(3)));
