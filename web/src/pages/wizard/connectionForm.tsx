import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { answer, type Checks, type Connection, type ConnectionKind, type ConnectionPut, client } from "../../api/client";
import { connectionKindsQuery, keys } from "../../api/queries";
import { Radios, TextField } from "../../components/field";
import { Findings } from "../../components/findings";
import { ListField } from "../../components/listField";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { SettingFields } from "../../components/settingFields";
import { StatusBadge } from "../../components/statusBadge";
import { type Entry, fieldsOf, kindsFor, listsOf, NAME_HINT, NAME_PATTERN, type Role, rolesIn, valuesIn } from "../../labels/kinds";
import { queryClient } from "../../stream/queryClient";
import { collided } from "./queries";

/** What is typed, by the names of the settings. */
type Values = Record<string, string>;
/** What is typed for settings that are lists. */
type Lists = Record<string, readonly Entry[]>;

export interface Suggestion {
  name?: string;
  kind?: string;
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
export function ConnectionForm(props: ConnectionFormProps) {
  const kinds = useQuery(connectionKindsQuery());
  return <QueryBoundary query={kinds}>{(found) => <Form {...props} kinds={found} />}</QueryBoundary>;
}

function Form({ kinds: all, present, role, suggestion = {}, taken, onSaved }: ConnectionFormProps & { kinds: ConnectionKind[] }) {
  const [name, setName] = useState(present?.connection.name ?? suggestion.name ?? "");
  const [chosen, setChosen] = useState(() => firstKind(all, present?.connection ?? null, suggestion, role));
  const kind = all.find((each) => each.kind === chosen) ?? (all[0] as ConnectionKind);
  const [values, setValues] = useState<Values>(() => valuesOf(present?.connection ?? null, suggestion));
  const [typedLists, setLists] = useState<Lists>(() => entriesOf(present?.connection ?? null));
  const lists = listsOf(kind.settings).map((list) => ({ list, entries: typedLists[list.name] ?? Array<Entry>(list.least).fill({}) }));
  const [secrets, setSecrets] = useState<Record<string, Secret>>({});
  const roles = rolesIn(kind);
  const [usedAs, setUsedAs] = useState<Role>(role ?? (roles[0] as Role));
  const [tag] = useState(present?.etag ?? null);
  const checkedAs = roles.includes(usedAs) ? usedAs : (roles[0] as Role);
  const body = (): ConnectionPut =>
    connectionBody(kind, values, Object.fromEntries(lists.map(({ list, entries }) => [list.name, entries])), secrets);
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
  const set = (field: string, value: string): void => edit(() => setValues({ ...values, [field]: value }));
  const fields = fieldsOf(kind.settings);
  // The first secret is of the connection's own user.
  const [secret, ...otherSecrets] = fieldsOf(kind.secrets).map(({ name, label }) => (
    <SecretField
      key={name}
      label={label}
      isSet={present?.connection.secrets_set.includes(name) === true}
      secret={secrets[name] ?? UNTOUCHED}
      onChange={(next) => edit(() => setSecrets({ ...secrets, [name]: next }))}
    />
  ));
  const kinds = role === null ? all : kindsFor(all, role);
  return (
    <form className="connection-form" onSubmit={submit}>
      {present === null && kinds.length > 1 && (
        <Radios
          legend="Kind"
          value={kind.kind}
          choices={kinds.map((each) => ({ value: each.kind, label: each.title }))}
          onChange={(value) => edit(() => setChosen(value))}
        />
      )}
      {present === null && (
        <TextField
          label="Name of the connection"
          hint={NAME_HINT}
          wrong={given ? "A connection with this name already exists." : null}
          value={name}
          pattern={NAME_PATTERN}
          required
          onChange={(value) => edit(() => setName(value))}
        />
      )}
      <SettingFields fields={fields.filter(({ seldom }) => !seldom)} values={values} onChange={set} />
      {lists.map(({ list, entries }) => (
        <ListField
          key={list.name}
          list={list}
          entries={entries}
          onChange={(next) => edit(() => setLists({ ...typedLists, [list.name]: next }))}
        />
      ))}
      {secret}
      {(fields.some(({ seldom }) => seldom) || otherSecrets.length > 0) && (
        <details className="more">
          <summary>More settings</summary>
          <SettingFields fields={fields.filter(({ seldom }) => seldom)} values={values} onChange={set} />
          {otherSecrets}
        </details>
      )}
      {role === null && roles.length > 1 && (
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

interface Secret {
  typed: string;
  /** The one that is set is to be removed. */
  none: boolean;
}

const UNTOUCHED: Secret = { typed: "", none: false };

interface SecretFieldProps {
  label: string;
  isSet: boolean;
  secret: Secret;
  onChange: (secret: Secret) => void;
}

function SecretField({ label, isSet, secret, onChange }: SecretFieldProps) {
  return (
    <div className="fields">
      <TextField
        label={label}
        type="password"
        autoComplete="new-password"
        hint={
          isSet ? "A password is set, which is never shown. Leave this empty to keep it." : "It is stored encrypted, and never shown again."
        }
        value={secret.typed}
        disabled={secret.none}
        onChange={(typed) => onChange({ ...secret, typed })}
      />
      {isSet && (
        <label className="check">
          <input type="checkbox" checked={secret.none} onChange={(event) => onChange({ typed: "", none: event.target.checked })} />
          Remove the {label.toLowerCase()} that is set
        </label>
      )}
    </div>
  );
}

function firstKind(kinds: readonly ConnectionKind[], present: Connection | null, suggestion: Suggestion, role: Role | null): string {
  return present?.kind ?? suggestion.kind ?? kindsFor(kinds, role ?? "source")[0]?.kind ?? "";
}

function valuesOf(present: Connection | null, suggestion: Suggestion): Values {
  if (present === null) return { ...suggestion.values };
  return Object.fromEntries(Object.entries(present.settings).map(([name, value]) => [name, String(value)]));
}

const entriesOf = (present: Connection | null): Lists =>
  Object.fromEntries(Object.entries(present?.settings ?? {}).flatMap(([name, value]) => (Array.isArray(value) ? [[name, value]] : [])));

function connectionBody(kind: ConnectionKind, values: Values, lists: Lists, typed: Record<string, Secret>): ConnectionPut {
  const secrets: Record<string, string | null> = {};
  for (const { name } of fieldsOf(kind.secrets)) {
    const secret = typed[name] ?? UNTOUCHED;
    if (secret.none) secrets[name] = null;
    if (secret.typed !== "") secrets[name] = secret.typed;
  }
  const entries = listsOf(kind.settings).map(({ name, fields }) => [name, (lists[name] ?? []).map((entry) => valuesIn(fields, entry))]);
  return {
    kind: kind.kind,
    settings: { ...valuesIn(fieldsOf(kind.settings), values), ...Object.fromEntries(entries) },
    secrets,
  } as ConnectionPut;
}

const checkOf = (name: string, role: Role, connection: ConnectionPut): Promise<Checks> =>
  answer(client.POST("/api/v1/connections/{name}/checks", { params: { path: { name } }, body: { role, connection } }));

async function store(name: string, body: ConnectionPut, header: { "if-match"?: string; "if-none-match"?: "*" }): Promise<void> {
  try {
    await answer(client.PUT("/api/v1/connections/{name}", { params: { path: { name }, header }, body }));
  } catch (error) {
    throw "if-none-match" in header
      ? collided(error, `A connection named ${name} already exists.`, "Choose another name.")
      : collided(error, "The connection was changed since you opened it.", "Open it again, and repeat your change.");
  }
}
