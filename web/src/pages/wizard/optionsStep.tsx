import { useMutation, useQuery } from "@tanstack/react-query";
import { answer, type Connection, client, type SubscriptionPut } from "../../api/client";
import { fieldError } from "../../api/fieldErrors";
import { Radios, TextField } from "../../components/field";
import { SettingFields } from "../../components/settingFields";
import { capturesOf } from "../../labels/kinds";
import { useKinds } from "../../useKinds";
import { detectionKind, lacksKey } from "./detection";
import { Detections } from "./detections";
import { bodyOf, captureFields, captureOf, chosenOf, hasSetting, type Options, type StepProps } from "./draft";
import { sourceTablesQuery } from "./queries";

/** What people decide; everything else has a default that fits, and can be changed later. */
export function OptionsStep({ draft, onChange, onNext, source }: StepProps & { source: Connection }) {
  const { options } = draft;
  const captures = capturesOf(useKinds(), source);
  const capture = captureOf(captures, options);
  const detection = detectionKind(capture);
  const tables = useQuery(sourceTablesQuery(draft.source, options.capture)).data ?? [];
  const plan = useMutation({
    mutationFn: (body: SubscriptionPut) =>
      answer(client.POST("/api/v1/subscriptions/{name}/plans", { params: { path: { name: draft.name } }, body })),
    onSuccess: onNext,
    // What is not said of these fields is shown with the check, where it can be tried again.
    onError: (error) => (fieldError(error, CAPTURE) === null ? onNext() : undefined),
  });
  const atCapture = (name: string): string | null => fieldError(plan.error, `${CAPTURE}/${name}`);
  const edit: typeof onChange = (changes) => {
    plan.reset();
    onChange(changes);
  };
  const set = (changes: Partial<Options>): void => edit({ options: { ...options, ...changes } });
  const wrong = { rows: wrongRows(options.rowsPerSecond), budget: wrongBudget(options.slotBudgetGib) };
  return (
    <form
      className="options"
      onSubmit={(event) => {
        event.preventDefault();
        if (wrong.rows === null && wrong.budget === null && !plan.isPending) plan.mutate(bodyOf(draft, tables, captureFields(capture)));
      }}
    >
      <p className="prose soft">The defaults are right for most. All of them can be changed later, but for the schema on the target.</p>
      <Radios
        legend="When it is created"
        value={options.start ? "now" : "later"}
        choices={[
          { value: "now", label: "Begin at once", hint: "The tables are copied, then follow the source." },
          { value: "later", label: "Keep it stopped", hint: "Nothing is replicated before you resume it." },
        ]}
        onChange={(value) => set({ start: value === "now" })}
      />
      <Radios
        legend="When the schema of a table changes on the source"
        value={options.policy}
        choices={[
          {
            value: "apply",
            label: "Follow",
            hint: "The target follows; if rows may have changed in ways that the log does not show, the table is copied again, with its old rows readable until then.",
          },
          { value: "ask", label: "Ask first", hint: "The table waits, with the exact statements, until they are approved." },
          {
            value: "ignore",
            label: "Leave the target as it is",
            hint: "New columns are left out; a change that cannot be left out parks the table.",
          },
        ]}
        onChange={(policy) => set({ policy })}
      />
      <Radios
        legend="When the target refuses a row"
        value={options.refusedRows}
        choices={[
          { value: "park", label: "Park the table", hint: "The table stops at the row; the other tables are not affected." },
          {
            value: "set_aside",
            label: "Quarantine the row",
            hint: "The row is stored separately, and the table is replicated without it.",
          },
        ]}
        onChange={(refusedRows) => set({ refusedRows })}
      />
      <div className="fields">
        <TextField
          label="Schema on the target"
          hint="Empty: as on the source. All chosen tables go into this one else, which is made where it is missing."
          value={options.targetSchema}
          maxLength={63}
          onChange={(targetSchema) => set({ targetSchema })}
        />
        <TextField
          label="Maximum rows per second of copies"
          hint="Empty: no limit. Copies are throttled automatically while they delay other commits."
          wrong={wrong.rows}
          inputMode="numeric"
          value={options.rowsPerSecond}
          onChange={(rowsPerSecond) => set({ rowsPerSecond })}
        />
        {hasSetting(capture, "slot_budget_bytes") && (
          <TextField
            label="Log the source may hold back, GiB"
            hint="Empty: 16. The source keeps its log until it is read; near this limit an event warns, then copies stop, at last the slot is dropped."
            wrong={wrong.budget}
            inputMode="decimal"
            value={options.slotBudgetGib}
            onChange={(slotBudgetGib) => set({ slotBudgetGib })}
          />
        )}
      </div>
      <SettingFields
        wrong={atCapture}
        fields={captureFields(capture)}
        values={options.captureSettings}
        onChange={(name, value) => set({ captureSettings: { ...options.captureSettings, [name]: value } })}
      />
      {detection !== null && (
        <Detections
          detections={draft.detections}
          onChange={(detections) => edit({ detections })}
          kind={detection}
          tables={chosenOf(draft, tables)}
          isNeeded={(table) => detection.key && lacksKey(table)}
          refused={plan.error}
        />
      )}
      <details className="more" hidden={!hasSetting(capture, "origin")}>
        <summary>Where databases replicate to each other</summary>
        <Radios
          legend="Changes that replication wrote to the source"
          value={options.origin}
          choices={[
            { value: "any", label: "Follow them, too" },
            {
              value: "none",
              label: "Exclude them",
              hint: "Prevents replication loops. Requires PostgreSQL 16 or newer as the source.",
            },
          ]}
          onChange={(origin) => set({ origin })}
        />
      </details>
      <div className="form-foot">
        <button type="submit" className="primary" disabled={plan.isPending}>
          Next: check
        </button>
        {fieldError(plan.error, CAPTURE) !== null && <span className="tone-bad">{fieldError(plan.error, CAPTURE)}</span>}
      </div>
    </form>
  );
}

const CAPTURE = "/capture";

const LEAST_ROWS = 1000;

const wrongRows = (typed: string): string | null =>
  typed === "" || (/^[0-9]+$/.test(typed) && Number(typed) >= LEAST_ROWS) ? null : `A number, ${LEAST_ROWS} or more.`;

const LEAST_GIB = 1 / 1024;

const wrongBudget = (typed: string): string | null =>
  typed === "" || (/^[0-9]+(\.[0-9]+)?$/.test(typed) && Number(typed) >= LEAST_GIB) ? null : "A number of GiB, such as 16 or 0.5.";
