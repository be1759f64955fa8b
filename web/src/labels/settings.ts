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
        "With a larger lag, this console shows the subscription as late. It has no other effect.",
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
        "Log that the source may retain for this subscription. The shares below refer to it, or to the source's own limit if that is lower.",
      ),
      share("capture.guard.warn_share", "Warn from", "A warning event is recorded, and this console shows the subscription as at risk."),
      share(
        "capture.guard.persist_share",
        "Make the queue durable from",
        "Only for a queue in mode auto: the source can then release its log earlier.",
      ),
      share(
        "capture.guard.stop_copies_share",
        "Stop copies from",
        "Copies and reloads are suspended until less log is retained; they retain log too.",
      ),
      share(
        "capture.guard.name_transaction_share",
        "Name the holder from",
        "An event names the open transaction on the source that retains the log.",
      ),
      share(
        "capture.guard.drop_slot_share",
        "Drop the slot from",
        "The last resort to keep the source's disk from filling: all tables must then be copied again.",
      ),
      {
        kind: "switch",
        path: ["capture", "guard", "drop_slot"],
        label: "The slot may be dropped",
        effect: "at once",
        means: "If not, only the source's max_slot_wal_keep_size limits the log.",
      },
      choice("capture.origin", "Changes followed", "next start", "Rows already replicated stay.", [
        ["any", "all changes"],
        [
          "none",
          "only those made on the source itself, not those that replication wrote there, which prevents loops; requires PostgreSQL 16",
        ],
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
        "A batch is sealed at the first of these three limits. Larger batches cost less per row; smaller ones are fresher.",
      ),
      number("batch.max_transactions", "Most transactions", "", 1, "next start", "Source transactions in one batch."),
      number("batch.max_bytes", "Largest", "MiB", MIB, "next start", "Log in one batch."),
      number(
        "batch.small_rows",
        "Small up to",
        "rows",
        1,
        "next start",
        "Batches with fewer rows are prepared in the engine process, larger ones by Spark. 0: all by Spark.",
        MEASURED,
      ),
      number("batch.tasks", "Parallel tasks", "", 1, "next start", "Parallel Spark tasks that prepare a batch.", MEASURED),
    ],
  },
  {
    title: "Apply",
    settings: [
      choice(
        "apply.mode",
        "Transactions on the target",
        "next start",
        "How the source's transactions become transactions of the target. The last two require a PostgreSQL target.",
        [
          ["auto", "net changes or groups, whichever costs less"],
          ["batch", "the net changes of a whole batch in one"],
          ["grouped", "several consecutive ones in one, change by change"],
          ["transactional", "each in a separate one, in commit order"],
        ],
      ),
      choice(
        "apply.policy",
        "Rows changed by several",
        "next start",
        "How concurrent connections handle rows that transactions in several of them change.",
        [
          ["pessimistic", "wait until all earlier transactions are committed"],
          ["optimistic", "change them at once; transactions that block each other are rolled back and repeated in order"],
        ],
      ),
      choice("apply.visibility", "A batch becomes visible", "next start", "", [
        ["atomic", "all at once"],
        ["relaxed", "in parts, one shortly after the other; requires a PostgreSQL target with prepared transactions"],
      ]),
      number(
        "apply.lanes",
        "Connections",
        "",
        1,
        "next start",
        "Connections that write to the target concurrently, in group and transaction modes and for parts of a batch.",
        MEASURED,
      ),
      number("apply.group_size", "Transactions in a group", "", 1, "next start", "Only in the mode grouped.", MEASURED),
    ],
  },
  {
    title: "Queue",
    settings: [
      choice("queue.mode", "What is confirmed to the source", "at once", "Whether the source can release log before the target has it.", [
        ["memory", "what the target has"],
        ["persist", "what is durable in the engine's files, which are then part of your data"],
        ["auto", "what the target has, or what is durable in files while too much log is retained"],
      ]),
      number(
        "queue.budget_bytes",
        "Disk space",
        "MiB",
        MIB,
        "next start",
        "Disk space of the queue's files. Only transactions that are open on the source can exceed it.",
      ),
    ],
  },
  {
    title: "Schema changes",
    settings: [
      choice("schema_changes.policy", "A table's schema changes", "next start", "", [
        ["apply", "the target follows"],
        ["ask", "the table waits until the exact statements are approved"],
        ["ignore", "the target stays as it is; what cannot be left out parks the table"],
      ]),
    ],
  },
  {
    title: "Copies",
    settings: [
      number("copies.max_rows_per_second", "Maximum rows per second", "", 1, "at once", "For all copies and reloads together.", "no limit"),
      number(
        "copies.max_time_share",
        "Share of reading time",
        "%",
        0.01,
        "at once",
        "Share of the time in which rows are read for copies.",
      ),
      {
        kind: "switch",
        path: ["copies", "give_way"],
        label: "Give way",
        effect: "at once",
        means:
          "Adaptive throttling: reduce that share, down to a tenth, while commits to other tables take longer to become readable than without copies.",
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
