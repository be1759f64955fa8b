import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { answer, type Checks, type Connection, type ConnectionPut, client } from "../../api/client";
import { keys } from "../../api/queries";
import { Field, Radios, TextField } from "../../components/field";
import { Findings } from "../../components/findings";
import { ProblemNote } from "../../components/problemNote";
import { StatusBadge } from "../../components/statusBadge";
import { KINDS, type KindName, kindsFor, NAME_HINT, NAME_PATTERN, type Role, type Field as Setting } from "../../labels/kinds";
import { queryClient } from "../../stream/queryClient";
import { collided } from "./queries";

/** What is typed, by the names of the settings. */
type Values = Record<string, string>;

export interface Suggestion {
  name?: string;
  kind?: KindName;
  values?: Values;
}

interface ConnectionFormProps {
  /** What is changed, with its tag; null makes a new one. */
  present: { connection: Connection; etag: string | null } | null;
  /** What it is to be used as; null leaves the choice. */
  role: Role | null;
  suggestion?: Suggestion;
  /** Names that are given away. */
  taken: string[];
  onSaved: (name: string) => void;
}

/** Declares a connection: what is typed is checked where it leads before anything is stored. */
export function ConnectionForm({ present, role, suggestion = {}, taken, onSaved }: ConnectionFormProps) {
  const [name, setName] = useState(present?.connection.name ?? suggestion.name ?? "");
  const [kind, setKind] = useState<KindName>(() => firstKind(present?.connection ?? null, suggestion, role));
  const [values, setValues] = useState<Values>(() => valuesOf(present?.connection ?? null, suggestion));
  const [secret, setSecret] = useState<Secret>({ typed: "", none: false });
  const [usedAs, setUsedAs] = useState<Role>(role ?? (KINDS[kind].roles[0] as Role));
  const [tag] = useState(present?.etag ?? null);
  const checkedAs = KINDS[kind].roles.includes(usedAs) ? usedAs : (KINDS[kind].roles[0] as Role);
  const body = (): ConnectionPut => connectionBody(kind, values, secret);
  const check = useMutation({ mutationFn: () => checkOf(name, checkedAs, body()) });
  const save = useMutation({
    mutationFn: () => store(name, body(), present === null ? { "if-none-match": "*" as const } : tag === null ? {} : { "if-match": tag }),
    onSuccess: async () => {
      await queryClient.invalidateQueries({ queryKey: keys.connections });
      onSaved(name);
    },
  });
  const edit = (change: () => void): void => {
    change();
    check.reset();
    save.reset();
  };
  const given = taken.includes(name) && present === null;
  const busy = check.isPending || save.isPending;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!given && !busy) check.mutate();
  };
  const set = (field: string) => (value: string) => edit(() => setValues({ ...values, [field]: value }));
  const fields = KINDS[kind].fields;
  const secrets = present?.connection.secrets_set ?? [];
  const kinds = role === null ? (Object.keys(KINDS) as KindName[]) : kindsFor(role);
  return (
    <form className="connection-form" onSubmit={submit}>
      {present === null && kinds.length > 1 && (
        <Radios
          legend="Kind"
          value={kind}
          choices={kinds.map((value) => ({ value, label: KINDS[value].label }))}
          onChange={(value) => edit(() => setKind(value))}
        />
      )}
      {present === null && (
        <TextField
          label="Name of the connection"
          hint={NAME_HINT}
          wrong={given ? "There is a connection of this name already." : null}
          value={name}
          pattern={NAME_PATTERN}
          required
          onChange={(value) => edit(() => setName(value))}
        />
      )}
      <Settings fields={fields.filter(({ seldom }) => seldom !== true)} values={values} set={set} />
      {KINDS[kind].takesPassword && (
        <Password isSet={secrets.includes("password")} secret={secret} onChange={(next) => edit(() => setSecret(next))} />
      )}
      <details className="more">
        <summary>More settings</summary>
        <Settings fields={fields.filter(({ seldom }) => seldom === true)} values={values} set={set} />
      </details>
      {role === null && KINDS[kind].roles.length > 1 && (
        <Radios
          legend="Check it as"
          value={checkedAs}
          choices={[
            { value: "source", label: "a source", hint: "Its log can be read, and its user may publish tables." },
            { value: "target", label: "a target", hint: "Its user may make schemas and tables." },
          ]}
          onChange={(value) => edit(() => setUsedAs(value))}
        />
      )}
      <Outcome checks={check.data} />
      {check.error !== null && <ProblemNote error={check.error} />}
      {save.error !== null && <ProblemNote error={save.error} />}
      <div className="form-foot">
        <button type="submit" className={check.data?.ok === true ? undefined : "primary"} disabled={given || busy}>
          {check.isPending ? "Checking …" : check.data === undefined ? "Check" : "Check again"}
        </button>
        {(check.data !== undefined || check.error !== null) && (
          <button
            type="button"
            className={check.data?.ok === true ? "primary" : undefined}
            disabled={given || busy}
            onClick={() => save.mutate()}
          >
            {saveWords(present !== null, check.data, save.isPending)}
          </button>
        )}
        {check.data === undefined && check.error === null && (
          <span className="soft">Nothing is stored before you have seen what the check finds.</span>
        )}
      </div>
    </form>
  );
}

function saveWords(present: boolean, checks: Checks | undefined, pending: boolean): string {
  if (pending) return "Storing …";
  const verb = present ? "Save" : "Create";
  if (checks === undefined) return `${verb} unchecked`;
  return checks.ok ? verb : `${verb} nevertheless`;
}

function Outcome({ checks }: { checks: Checks | undefined }) {
  return (
    <div role="status">
      {checks !== undefined && (
        <>
          {checks.ok && (
            <StatusBadge tone="good">{checks.findings.length === 0 ? "No problems found." : "No problems found. Notes:"}</StatusBadge>
          )}
          <Findings findings={checks.findings} />
        </>
      )}
    </div>
  );
}

interface SettingsProps {
  fields: readonly Setting[];
  values: Values;
  set: (field: string) => (value: string) => void;
}

function Settings({ fields, values, set }: SettingsProps) {
  return (
    <div className="fields">
      {fields.map((field) => {
        const value = values[field.name] ?? field.initial ?? "";
        if (field.choices !== undefined) {
          return (
            <Field key={field.name} label={field.label} hint={field.hint}>
              {(described) => (
                <select {...described} value={value} onChange={(event) => set(field.name)(event.target.value)}>
                  {field.choices?.map((choice) => (
                    <option key={choice}>{choice}</option>
                  ))}
                </select>
              )}
            </Field>
          );
        }
        return (
          <TextField
            key={field.name}
            label={field.label}
            hint={field.hint}
            value={value}
            required={field.required === true}
            inputMode={field.number === true ? "numeric" : undefined}
            pattern={field.number === true ? "[0-9]+" : undefined}
            onChange={set(field.name)}
          />
        );
      })}
    </div>
  );
}

interface Secret {
  typed: string;
  /** The one that is set is to be removed. */
  none: boolean;
}

function Password({ isSet, secret, onChange }: { isSet: boolean; secret: Secret; onChange: (secret: Secret) => void }) {
  return (
    <div className="fields">
      <TextField
        label="Password"
        type="password"
        autoComplete="new-password"
        hint={isSet ? "One is set, and never shown. Left empty it stays." : "It is stored sealed, and never shown again."}
        value={secret.typed}
        disabled={secret.none}
        onChange={(typed) => onChange({ ...secret, typed })}
      />
      {isSet && (
        <label className="check">
          <input type="checkbox" checked={secret.none} onChange={(event) => onChange({ typed: "", none: event.target.checked })} />
          Remove the password that is set
        </label>
      )}
    </div>
  );
}

function firstKind(present: Connection | null, suggestion: Suggestion, role: Role | null): KindName {
  if (present !== null && present.kind in KINDS) return present.kind as KindName;
  return suggestion.kind ?? kindsFor(role ?? "source")[0] ?? "postgres";
}

function valuesOf(present: Connection | null, suggestion: Suggestion): Values {
  if (present === null) return { ...suggestion.values };
  return Object.fromEntries(Object.entries(present.settings).map(([name, value]) => [name, String(value)]));
}

/** What is left empty is left out, and has its default. */
function connectionBody(kind: KindName, values: Values, secret: Secret): ConnectionPut {
  const settings: Record<string, string | number> = {};
  for (const { name, number, initial } of KINDS[kind].fields) {
    const value = (values[name] ?? initial ?? "").trim();
    if (value !== "") settings[name] = number === true ? Number(value) : value;
  }
  const secrets: Record<string, string | null> = {};
  if (KINDS[kind].takesPassword && secret.none) secrets.password = null;
  if (KINDS[kind].takesPassword && secret.typed !== "") secrets.password = secret.typed;
  return { kind, settings: settings as ConnectionPut["settings"], secrets };
}

const checkOf = (name: string, role: Role, connection: ConnectionPut): Promise<Checks> =>
  answer(client.POST("/api/v1/connections/{name}/checks", { params: { path: { name } }, body: { role, connection } }));

async function store(name: string, body: ConnectionPut, header: { "if-match"?: string; "if-none-match"?: "*" }): Promise<void> {
  try {
    await answer(client.PUT("/api/v1/connections/{name}", { params: { path: { name }, header }, body }));
  } catch (error) {
    throw "if-none-match" in header
      ? collided(error, `There is a connection named ${name} already.`, "Take another name.")
      : collided(error, "The connection was changed since you opened it.", "Open it again, and change what it is now.");
  }
}
