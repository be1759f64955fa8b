import type { ConnectionKind } from "../api/client";

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
const share = (path: string, label: string): NumberSetting => number(path, label, "%", 0.01, "at once", "");
const choice = (path: string, label: string, effect: Effect, means: string, choices: [string, string][]): ChoiceSetting => ({
  kind: "choice",
  path: path.split("."),
  label,
  effect,
  means,
  choices: choices.map(([value, one]) => ({ value, means: one })),
});

/** Settings of captures that are entered in another way than their schema tells; what they mean is in the schema. */
const OF_CAPTURES: Setting[] = [
  number("capture.slot_budget_bytes", "Budget", "MiB", MIB, "at once", ""),
  share("capture.guard.warn_share", "Warn from"),
  share("capture.guard.persist_share", "Make the queue durable from"),
  share("capture.guard.stop_copies_share", "Stop copies from"),
  share("capture.guard.name_transaction_share", "Name the holder from"),
  share("capture.guard.drop_slot_share", "Drop the slot from"),
  { kind: "switch", path: ["capture", "guard", "drop_slot"], label: "The slot may be dropped", effect: "at once", means: "" },
  choice("capture.origin", "Changes followed", "next start", "", [
    ["any", "all changes"],
    ["none", "only those made on the source itself"],
  ]),
];

/** The settings of every subscription; those of its capture are `captureGroup`. */
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
        "With a larger lag, this console shows the subscription as late, and the error budget is used if a share of the time is set.",
      ),
      number(
        "freshness.goal_percent",
        "Share of the time",
        "%",
        1,
        "at once",
        "The lag is to be within the goal for this share of the time. The rest of the time is the error budget.",
        "not measured",
      ),
      number("freshness.window_hours", "Window", "hours", 1, "at once", "The time up to now over which the share is measured."),
      {
        kind: "switch",
        path: ["freshness", "count_pauses"],
        label: "Pauses count as late",
        effect: "at once",
        means: "Time in which a user has paused the subscription or a table uses the error budget.",
      },
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
  {
    title: "Verification",
    settings: [
      number(
        "verify.every_seconds",
        "Each table every",
        "hours",
        3600,
        "at once",
        "Each live table is compared with the source again after this time, one after another, the longest ago first.",
        "no schedule",
      ),
      number(
        "verify.budget",
        "Share of the time",
        "%",
        0.01,
        "at once",
        "Largest share of the time in which the schedule compares, and so reads the source.",
      ),
      choice("verify.method", "Compared", "at once", "How the schedule compares tables.", [
        ["rows", "by rows"],
        ["checksum", "by checksums of key ranges"],
      ]),
      number(
        "verify.sample",
        "Share of each table",
        "%",
        0.01,
        "at once",
        "About which share of each table is compared, in ranges of keys that are chosen at random, others each time. Less than all does not verify a table as a whole.",
      ),
    ],
  },
];

interface Property {
  title?: string;
  description?: string;
  type?: string;
  enum?: string[];
  properties?: Record<string, Property>;
  anyOf?: Property[];
  $ref?: string;
}

/** The settings of a capture as its JSON schema describes them, those of nested objects included. Lines of text cannot be changed here. */
export function captureGroup({ title, settings }: Pick<ConnectionKind["captures"][number], "title" | "settings">): SettingGroup {
  const { $defs = {}, ...schema } = settings as Property & { $defs?: Record<string, Property> };
  const whole = (property: Property): Property => {
    const { $ref, ...own } = property.anyOf?.find((each) => each.type !== "null") ?? property;
    return { ...$defs[$ref?.split("/").at(-1) ?? ""], ...own, description: property.description, title: property.title };
  };
  const within = (above: Property, path: string[]): Setting[] =>
    Object.entries(above.properties ?? {}).flatMap(([name, given]) => {
      const property = whole(given);
      const place = [...path, name];
      return property.properties === undefined ? settingOf(property, place) : within(property, place);
    });
  return { title, settings: within(schema, ["capture"]) };
}

function settingOf({ title, description = "", type, enum: choices }: Property, path: string[]): Setting[] {
  const known = OF_CAPTURES.find((each) => each.path.join(".") === path.join("."));
  if (known !== undefined) return [{ ...known, means: description }];
  const shared = { path, label: title ?? path.at(-1) ?? "", means: description, effect: "next start" } as const;
  if (choices !== undefined) return [{ ...shared, kind: "choice", choices: choices.map((value) => ({ value, means: "" })) }];
  if (type === "boolean") return [{ ...shared, kind: "switch" }];
  return type === "integer" || type === "number" ? [{ ...shared, kind: "number", unit: "", per: 1, empty: DEFAULT }] : [];
}

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
