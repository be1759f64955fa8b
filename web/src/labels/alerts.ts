import type { AlertCause, AlertChannel, AlertChannelPut, AlertKind } from "../api/alerts";

/** How alert channels are worded, and how what is typed becomes one. */

export const KIND_WORDS: Record<AlertKind, { title: string; means: string }> = {
  webhook: { title: "Webhook", means: "A signed JSON document is posted to an address of yours." },
  slack: { title: "Slack", means: "A message by an incoming webhook of Slack." },
  email: { title: "E-mail", means: "A mail by your mail server." },
};
export const KINDS = Object.keys(KIND_WORDS) as AlertKind[];

export const CAUSE_WORDS: Record<AlertCause, string> = {
  freshness_goal_missed: "a subscription is later than its freshness goal",
  freshness_budget_fast_burn: "the error budget of a freshness goal is used up within hours",
  freshness_budget_slow_burn: "the error budget of a freshness goal is used up within days",
  freshness_budget_spent: "the error budget of a freshness goal is spent",
  slot_risk: "the source retains too much log",
  fault: "a subscription has failed, or a table is parked",
  verification_failed: "a table differs from its source, or a verification failed",
};
export const CAUSES = Object.keys(CAUSE_WORDS) as AlertCause[];

/** A kind of a newer server has its own name. */
export const kindTitle = (kind: string): string => KIND_WORDS[kind as AlertKind]?.title ?? kind;
export const causeWords = (cause: string): string => CAUSE_WORDS[cause as AlertCause] ?? cause.replaceAll("_", " ");

/** Where its notices go; null where that is a secret. */
export function receiverOf({ settings }: AlertChannel): string | null {
  const { url, recipients, host } = settings;
  if (typeof url === "string") return url;
  if (!Array.isArray(recipients)) return null;
  return `${recipients.join(", ")}${typeof host === "string" ? ` by ${host}` : ""}`;
}

/** The one secret of each kind. `required`: without it there is no channel. */
export const SECRETS: Record<AlertKind, { name: string; label: string; required: boolean }> = {
  webhook: { name: "signing_key", label: "Signing key", required: true },
  slack: { name: "url", label: "Address of the webhook", required: true },
  email: { name: "password", label: "Password", required: false },
};

const HOUR_S = 3600;

/** What is typed and chosen in the form. */
export interface Typed {
  kind: AlertKind;
  url: string;
  host: string;
  port: string;
  security: string;
  user: string;
  sender: string;
  /** Separated by commas, blanks or lines. */
  recipients: string;
  /** Empty: the one that is set stays. */
  secret: string;
  noSecret: boolean;
  /** Empty: all. */
  causes: ReadonlySet<string>;
  subscriptions: ReadonlySet<string>;
  repeatHours: string;
}

export function typedOf(present: AlertChannel | null): Typed {
  const text = (name: string, otherwise = ""): string => String(present?.settings[name] ?? otherwise);
  const { recipients } = present?.settings ?? {};
  return {
    kind: present?.kind ?? "webhook",
    url: text("url"),
    host: text("host"),
    port: text("port", "587"),
    security: text("security", "starttls"),
    user: text("user"),
    sender: text("sender"),
    recipients: Array.isArray(recipients) ? recipients.join("\n") : "",
    secret: "",
    noSecret: false,
    causes: new Set(present?.causes),
    subscriptions: new Set(present?.subscriptions),
    repeatHours: String(Number(((present?.repeat_seconds ?? 4 * HOUR_S) / HOUR_S).toFixed(3))),
  };
}

export function bodyOf(typed: Typed): AlertChannelPut {
  const { name } = SECRETS[typed.kind];
  return {
    kind: typed.kind,
    settings: settingsOf(typed),
    secrets: typed.noSecret ? { [name]: null } : typed.secret === "" ? {} : { [name]: typed.secret },
    causes: [...typed.causes] as AlertCause[],
    subscriptions: [...typed.subscriptions],
    repeat_seconds: Math.round(Number(typed.repeatHours) * HOUR_S),
  };
}

function settingsOf(typed: Typed): NonNullable<AlertChannelPut["settings"]> {
  if (typed.kind === "webhook") return { url: typed.url.trim() };
  if (typed.kind === "slack") return {};
  return {
    host: typed.host.trim(),
    port: Number(typed.port),
    security: typed.security as "starttls",
    ...(typed.user.trim() === "" ? {} : { user: typed.user.trim() }),
    sender: typed.sender.trim(),
    recipients: typed.recipients.split(/[\s,;]+/).filter((each) => each !== ""),
  };
}

/** A signing key of 256 random bits. */
export function newSigningKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
