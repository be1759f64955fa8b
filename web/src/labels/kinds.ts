import type { Connection, ConnectionKind } from "../api/client";

export type Role = "source" | "target";

/** A setting as it is asked for. */
export interface Field {
  name: string;
  label: string;
  hint?: string;
  /** Else it is a line of text. */
  choices?: readonly string[];
  number?: boolean;
  required: boolean;
  initial: string;
  /** Asked for only on request. */
  seldom: boolean;
}

interface Property {
  title?: string;
  description?: string;
  type?: string;
  enum?: string[];
  const?: unknown;
  default?: unknown;
  anyOf?: Property[];
}

const ASKED = new Set(["string", "integer", "number"]);

/** The settings that a JSON schema describes; those up to the last required one are asked for at once. Nested objects are left out. */
export function fieldsOf(schema: object): Field[] {
  const { properties = {}, required = [] } = schema as { properties?: Record<string, Property>; required?: string[] };
  const names = Object.keys(properties);
  const last = Math.max(-1, ...required.map((name) => names.indexOf(name)));
  return Object.entries(properties).flatMap(([name, property], at) => {
    const { type, const: fixed, enum: choices } = property.anyOf?.find((each) => each.type !== "null") ?? property;
    if (fixed !== undefined || !ASKED.has(type ?? "")) return [];
    return {
      name,
      label: property.title ?? name,
      ...(property.description === undefined ? {} : { hint: property.description }),
      ...(choices === undefined ? {} : { choices }),
      number: type !== "string",
      required: required.includes(name),
      initial: property.default == null ? "" : String(property.default),
      seldom: at > last,
    };
  });
}

/** What is typed into fields, by their names: what is left empty is left out, and has its default. */
export function valuesIn(fields: readonly Field[], typed: Record<string, string>): Record<string, string | number> {
  const values: Record<string, string | number> = {};
  for (const { name, number, initial } of fields) {
    const value = (typed[name] ?? initial).trim();
    if (value !== "") values[name] = number === true ? Number(value) : value;
  }
  return values;
}

const findKind = (kinds: readonly ConnectionKind[], kind: string): ConnectionKind | undefined => kinds.find((each) => each.kind === kind);

/** The likeliest first: what the engine keeps itself is a target, as a rule. */
export const rolesIn = (kind: ConnectionKind): Role[] =>
  (kind.embedded ? (["target", "source"] as const) : (["source", "target"] as const)).filter((role) => kind[role]);

/** Kinds that can be used so, the likeliest first. */
export const kindsFor = (kinds: readonly ConnectionKind[], role: Role): ConnectionKind[] =>
  kinds.filter((kind) => kind[role]).sort((a, b) => place(a, role) - place(b, role));

const place = (kind: ConnectionKind, role: Role): number =>
  !kind.embedded ? rolesIn(kind).length : role === "target" ? 0 : Number.MAX_SAFE_INTEGER;

/** What a connection can be used as; nothing where the server does not know its kind. */
export function rolesOf(kinds: readonly ConnectionKind[], { kind }: Connection): Role[] {
  const found = findKind(kinds, kind);
  return found === undefined ? [] : rolesIn(found);
}

/** Whether the engine opens its database itself, and makes it where it is missing. */
export const isEmbedded = (kinds: readonly ConnectionKind[], { kind }: Connection): boolean => findKind(kinds, kind)?.embedded === true;

/** How its changes can be read as a source, the usual way first. */
export const capturesOf = (kinds: readonly ConnectionKind[], { kind }: Connection): ConnectionKind["captures"] =>
  findKind(kinds, kind)?.captures ?? [];

/** Whether triggers on it can record its changes. */
export const isByTriggers = (kinds: readonly ConnectionKind[], connection: Connection): boolean =>
  capturesOf(kinds, connection).some(({ by_triggers }) => by_triggers);

export const kindLabel = (kinds: readonly ConnectionKind[], kind: string): string => findKind(kinds, kind)?.title ?? kind;

/** Where a connection leads, from the settings that say so. */
export function placeOf({ settings }: Pick<Connection, "settings">): string {
  if (settings.path !== undefined) return String(settings.path);
  const { host, port, database, user } = settings;
  if (host === undefined) return Object.values(settings).join(" ");
  return `${user === undefined ? "" : `${user}@`}${host}${port === undefined ? "" : `:${port}`}${database === undefined ? "" : `/${database}`}`;
}

/** What names of connections and subscriptions may be made of, for an input's `pattern`. */
export const NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.\\-]{0,62}";
export const NAME_HINT = "1 to 63 letters, digits, _ . and -, the first a letter or digit.";
