import type { ReactNode } from "react";
import type { SourceTable } from "../../api/client";
import { fieldError } from "../../api/fieldErrors";
import { Field, TextField } from "../../components/field";
import { type DetectionDraft, type DetectionDrafts, type DetectionKind, isFlagged, isStamped, isView, NO_DETECTION } from "./detection";
import { keyOf, nameOf } from "./draft";

interface DetectionsProps {
  detections: DetectionDrafts;
  onChange: (detections: DetectionDrafts) => void;
  kind: DetectionKind;
  /** Those that can be chosen. */
  tables: SourceTable[];
  /** Whether a table needs an entry, which is shown in any case. */
  isNeeded: (table: SourceTable) => boolean;
  /** What the server refused the settings for, if it did. */
  refused: unknown;
  /** Whether a heading on the page says already what this is. */
  isTitled?: boolean;
}

const escaped = (name: string): string => name.replaceAll("~", "~0").replaceAll("/", "~1");

/** How the changes of single tables are found: those that need a declared key, and those that are added here. */
export function Detections({ detections, onChange, kind, tables, isNeeded, refused, isTitled = false }: DetectionsProps) {
  const shown = (table: SourceTable): boolean => keyOf(table) in detections || isNeeded(table);
  const others = tables.filter((table) => !shown(table));
  const entries = tables.filter(shown);
  const set = (table: SourceTable, changes: Partial<DetectionDraft>): void =>
    onChange({ ...detections, [keyOf(table)]: { ...(detections[keyOf(table)] ?? NO_DETECTION), ...changes } });
  const remove = (table: SourceTable): void => {
    const { [keyOf(table)]: _, ...rest } = detections;
    onChange(rest);
  };
  return (
    <fieldset className="detections">
      {!isTitled && <legend>Single tables</legend>}
      <p className="prose soft">
        Tables that are read in another way than the others
        {kind.key && "; views, and tables without a key, need the columns that identify a row"}.
      </p>
      {entries.map((table) => (
        <Entry
          key={keyOf(table)}
          table={table}
          kind={kind}
          entered={detections[keyOf(table)] ?? NO_DETECTION}
          onChange={(changes) => set(table, changes)}
          onRemove={isNeeded(table) ? undefined : () => remove(table)}
          wrong={(member) => fieldError(refused, `/capture/tables/${escaped(nameOf(table))}${member}`)}
        />
      ))}
      {others.length > 0 && (
        <div className="fields">
          <Field label="Another table">
            {(described) => (
              <select
                {...described}
                value=""
                onChange={(event) => {
                  const table = others.find((each) => keyOf(each) === event.target.value);
                  if (table !== undefined) set(table, {});
                }}
              >
                <option value="">Choose …</option>
                {others.map((table) => (
                  <option key={keyOf(table)} value={keyOf(table)}>
                    {nameOf(table)}
                  </option>
                ))}
              </select>
            )}
          </Field>
        </div>
      )}
    </fieldset>
  );
}

interface EntryProps {
  table: SourceTable;
  kind: DetectionKind;
  entered: DetectionDraft;
  onChange: (changes: Partial<DetectionDraft>) => void;
  /** None for a table whose entry is needed. */
  onRemove: (() => void) | undefined;
  /** What the server says of a member of the entry, such as `/key`; with "" of any. */
  wrong: (member: string) => string | null;
}

const MEMBERS = ["key", "method", "stamp_column", "flag_column", "sweep_every", "columns", "stamps_below"];

function Entry({ table, kind, entered, onChange, onRemove, wrong }: EntryProps) {
  const atMember = MEMBERS.some((member) => wrong(`/${member}`) !== null);
  return (
    <fieldset className="detection">
      <legend>
        <code>{nameOf(table)}</code>
        {isView(table) && <span className="soft"> view</span>}
      </legend>
      {kind.key && table.key.length === 0 && (
        <Key table={table} chosen={entered.key} hint={kind.hints.key} wrong={wrong("/key")} onChange={(key) => onChange({ key })} />
      )}
      {kind.methods.length > 0 && <Methods {...{ table, kind, entered, onChange, wrong }} />}
      {kind.types && (
        <Types table={table} types={entered.types} hint={kind.hints.columns} wrong={wrong} onChange={(types) => onChange({ types })} />
      )}
      {!atMember && wrong("") !== null && (
        <p className="tone-bad" role="alert">
          {wrong("")}
        </p>
      )}
      {onRemove !== undefined && (
        <button type="button" className="quiet" aria-label={`Read ${nameOf(table)} like the others`} onClick={onRemove}>
          Read it like the others
        </button>
      )}
    </fieldset>
  );
}

interface KeyProps {
  table: SourceTable;
  chosen: readonly string[];
  hint: string | undefined;
  wrong: string | null;
  onChange: (key: string[]) => void;
}

/** The columns that identify a row, in the order in which they are chosen. */
function Key({ table, chosen, hint, wrong, onChange }: KeyProps) {
  return (
    <fieldset className="key-columns" aria-invalid={wrong !== null || undefined}>
      <legend>
        Key
        {chosen.length > 0 ? (
          <>
            : <code>{chosen.join(", ")}</code>
          </>
        ) : (
          <span className="soft">: not chosen yet</span>
        )}
      </legend>
      <div className="choices">
        {table.columns.map(({ name, type }) => (
          <label key={name} className="check">
            <input
              type="checkbox"
              checked={chosen.includes(name)}
              onChange={(event) => onChange(event.target.checked ? [...chosen, name] : chosen.filter((each) => each !== name))}
            />
            {name} <small className="soft">{type}</small>
          </label>
        ))}
      </div>
      <p className={wrong === null ? "soft" : "tone-bad"}>{wrong ?? hint}</p>
    </fieldset>
  );
}

type MethodsProps = Pick<EntryProps, "table" | "kind" | "entered" | "onChange" | "wrong">;

function Methods({ table, kind, entered, onChange, wrong }: MethodsProps) {
  const { hints } = kind;
  const columns = table.columns.map(({ name }) => name);
  return (
    <div className="fields">
      <Choice
        label="How its changes are found"
        hint={isStamped(entered.method) ? hints.method : undefined}
        wrong={wrong("/method")}
        value={entered.method}
        choices={kind.methods}
        none="like the others"
        onChange={(method) => onChange({ method })}
      />
      {isStamped(entered.method) && (
        <Choice
          label="Stamp column"
          hint={hints.stamp_column}
          wrong={wrong("/stamp_column")}
          value={entered.stampColumn}
          choices={columns}
          none="Choose …"
          required
          onChange={(stampColumn) => onChange({ stampColumn })}
        />
      )}
      {isFlagged(entered.method) && (
        <Choice
          label="Column of the delete flag"
          hint={hints.flag_column}
          wrong={wrong("/flag_column")}
          value={entered.flagColumn}
          choices={columns}
          none="Choose …"
          required
          onChange={(flagColumn) => onChange({ flagColumn })}
        />
      )}
      {isStamped(entered.method) && (
        <TextField
          label="All rows once in … cycles"
          hint={`${hints.sweep_every} Empty: 12.`}
          wrong={wrong("/sweep_every")}
          value={entered.sweepEvery}
          inputMode="numeric"
          pattern="[0-9]+"
          onChange={(sweepEvery) => onChange({ sweepEvery })}
        />
      )}
    </div>
  );
}

interface ChoiceProps {
  label: string;
  hint: ReactNode;
  wrong: string | null;
  value: string;
  choices: readonly string[];
  /** What stands for no choice. */
  none: string;
  required?: boolean;
  onChange: (value: string) => void;
}

const Choice = ({ label, hint, wrong, value, choices, none, required, onChange }: ChoiceProps) => (
  <Field label={label} hint={hint} wrong={wrong}>
    {(described) => (
      <select {...described} required={required} value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">{none}</option>
        {choices.map((choice) => (
          <option key={choice}>{choice}</option>
        ))}
      </select>
    )}
  </Field>
);

interface TypesProps {
  table: SourceTable;
  types: DetectionDraft["types"];
  hint: string | undefined;
  wrong: EntryProps["wrong"];
  onChange: (types: DetectionDraft["types"]) => void;
}

/** The types of columns of files that have none. */
function Types({ table, types, hint, wrong, onChange }: TypesProps) {
  return (
    <details className="more" open>
      <summary>Types of its columns</summary>
      <p className="prose soft">{hint}</p>
      <div className="fields">
        {table.columns.map(({ name }) => (
          <TextField
            key={name}
            label={name}
            placeholder="text"
            value={types[name] ?? ""}
            wrong={wrong(`/columns/${escaped(name)}`)}
            onChange={(type) => onChange({ ...types, [name]: type })}
          />
        ))}
      </div>
    </details>
  );
}
