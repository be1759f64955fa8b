import { type FormEvent, useState } from "react";
import type { SourceTable } from "../../api/client";
import { Field, TextField } from "../../components/field";
import { Section } from "../../components/page";
import { some } from "../../labels/numbers";
import { type Draft, keyOf, lacksIdentity, type Pattern, type StepProps, takes } from "./draft";

/** Patterns of names: they match the tables that exist and those that appear later. */
export function Patterns({ draft, onChange, tables }: Pick<StepProps, "draft" | "onChange"> & { tables: SourceTable[] }) {
  const set = (patterns: Pattern[]): void => onChange({ patterns });
  return (
    <Section title="Tables created later" aside="By a pattern of their names">
      <p className="prose soft">
        A pattern includes all matching tables of a schema, existing ones and those created later: they are copied as soon as they appear in
        the source&apos;s log.
      </p>
      {draft.patterns.length > 0 && (
        <ul className="patterns">
          {draft.patterns.map((pattern, number) => (
            <Entry
              key={`${pattern.schema}.${pattern.name}`}
              pattern={pattern}
              tables={tables.filter((table) => takes(pattern, table))}
              onChange={(changed) => set(draft.patterns.map((other, at) => (at === number ? changed : other)))}
              onRemove={() => set(draft.patterns.filter((_, at) => at !== number))}
            />
          ))}
        </ul>
      )}
      <Add draft={draft} tables={tables} onAdd={(pattern) => onChange(withPattern(draft, pattern, tables))} />
    </Section>
  );
}

/** What it takes needs not be chosen by name as well. */
function withPattern(draft: Draft, pattern: Pattern, tables: SourceTable[]): Partial<Draft> {
  const taken = new Set(tables.filter((table) => takes(pattern, table)).map(keyOf));
  return { patterns: [...draft.patterns, pattern], tables: new Set([...draft.tables].filter((key) => !taken.has(key))) };
}

interface EntryProps {
  pattern: Pattern;
  /** Those that it takes now. */
  tables: SourceTable[];
  onChange: (pattern: Pattern) => void;
  onRemove: () => void;
}

function Entry({ pattern, tables, onChange, onRemove }: EntryProps) {
  const name = `${pattern.schema}.${pattern.name}`;
  const keyless = tables.filter(lacksIdentity).length;
  return (
    <li>
      <p>
        <code>{name}</code>
        {pattern.exclude.length > 0 && (
          <>
            {" "}
            without <code>{pattern.exclude.join(", ")}</code>
          </>
        )}{" "}
        <span className="soft">
          {some(tables.length, "table")} now
          {keyless > 0 &&
            `, ${keyless} of them without a key${pattern.insertOnly ? ": their updates and deletes are not replicated" : ": they prevent the subscription unless you choose the option below"}`}
        </span>
      </p>
      <label className="check">
        <input
          type="checkbox"
          checked={pattern.insertOnly}
          onChange={(event) => onChange({ ...pattern, insertOnly: event.target.checked })}
        />
        Replicate only inserts of tables without a key
      </label>
      <button type="button" className="quiet" aria-label={`Remove the pattern ${name}`} onClick={onRemove}>
        Remove
      </button>
    </li>
  );
}

function Add({ draft, tables, onAdd }: { draft: Draft; tables: SourceTable[]; onAdd: (pattern: Pattern) => void }) {
  const schemas = [...new Set(tables.map(({ schema }) => schema))];
  const [schema, setSchema] = useState(schemas[0] ?? "public");
  const [name, setName] = useState("*");
  const [exclude, setExclude] = useState("");
  const there = draft.patterns.some((pattern) => pattern.schema === schema && pattern.name === name);
  const wrong =
    name === ""
      ? null
      : !name.includes("*")
        ? "A pattern contains *, which matches any characters."
        : there
          ? "This pattern already exists."
          : null;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (wrong !== null) return;
    const excluded = exclude.split(",").map((part) => part.trim());
    onAdd({ schema, name, exclude: excluded.filter((part) => part !== ""), insertOnly: false });
    setName("");
    setExclude("");
  };
  return (
    <form className="fields add-pattern" onSubmit={submit}>
      <Field label="Schema">
        {(described) => (
          <select {...described} value={schema} onChange={(event) => setSchema(event.target.value)}>
            {schemas.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        )}
      </Field>
      <TextField label="Names like" value={name} wrong={wrong} hint="* matches any characters." required onChange={setName} />
      <TextField label="But not" value={exclude} hint="Names or patterns, separated by commas." onChange={setExclude} />
      <button type="submit" disabled={wrong !== null || name === ""}>
        Add the pattern
      </button>
    </form>
  );
}
