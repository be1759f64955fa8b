import type { Connection, ConnectionPut } from "../api/client";

export type KindName = ConnectionPut["kind"];
export type Role = "source" | "target";

/** A setting as it is asked for. */
export interface Field {
  name: string;
  label: string;
  hint?: string;
  /** Else it is a line of text. */
  choices?: readonly string[];
  number?: boolean;
  required?: boolean;
  initial?: string;
  /** Asked for only on request. */
  seldom?: boolean;
}

interface Kind {
  label: string;
  roles: readonly Role[];
  fields: readonly Field[];
  takesPassword: boolean;
}

const SSL_MODES = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;

export const KINDS: Record<KindName, Kind> = {
  postgres: {
    label: "PostgreSQL",
    roles: ["source", "target"],
    takesPassword: true,
    fields: [
      { name: "host", label: "Host", hint: "As the engine's machine calls it.", required: true },
      { name: "port", label: "Port", number: true, required: true, initial: "5432" },
      { name: "database", label: "Database", required: true },
      { name: "user", label: "User", required: true },
      {
        name: "sslmode",
        label: "Encryption",
        choices: SSL_MODES,
        initial: "prefer",
        hint: "As libpq's sslmode: require and above never go without.",
        seldom: true,
      },
      { name: "sslrootcert", label: "Certificates to trust", hint: "A file on the engine's machine.", seldom: true },
    ],
  },
  duckdb: {
    label: "DuckDB",
    roles: ["target"],
    takesPassword: false,
    fields: [
      {
        name: "path",
        label: "File",
        hint: "On the engine's machine; it is made where it is missing. A relative path begins in the engine's data folder (PENSTOCK_HOME, else .penstock in its home); “Check” says where it lies.",
        required: true,
      },
      {
        name: "memory_limit",
        label: "Memory at most",
        hint: "Such as 2GiB; by default what PENSTOCK_DUCKDB_MEMORY_MB says for the engine, else 1 GiB.",
        seldom: true,
      },
      { name: "threads", label: "Threads at most", number: true, seldom: true },
      { name: "spill_limit", label: "Disk space for intermediate results", hint: "Such as 10GiB.", seldom: true },
      { name: "checkpoint_threshold", label: "Checkpoint from", hint: "Size of the write-ahead file, such as 64MiB.", seldom: true },
    ],
  },
};

/** Kinds that can be used so, the likeliest first. */
export const kindsFor = (role: Role): KindName[] =>
  role === "source" ? ["postgres"] : (Object.keys(KINDS) as KindName[]).sort((a, b) => KINDS[a].roles.length - KINDS[b].roles.length);

/** What a connection can be used as; nothing where this console does not know its kind. */
export const rolesOf = ({ kind }: Connection): readonly Role[] => (kind in KINDS ? KINDS[kind as KindName].roles : []);

export const kindLabel = (kind: string): string => (kind in KINDS ? KINDS[kind as KindName].label : kind);

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
