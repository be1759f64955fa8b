import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { ConnectionKind, SourceTable, Subscription } from "../../api/client";
import { changedMeanwhile, patchUnchanged } from "../../api/patches";
import { keys } from "../../api/queries";
import { announce } from "../../components/announcements";
import { Section } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { type Detection, detectionsIn } from "../../labels/detections";
import { queryClient } from "../../stream/queryClient";
import { useKinds } from "../../useKinds";
import { usePermission } from "../../usePermission";
import { type DetectionDrafts, detectionKind, detectionOf, draftOf } from "../wizard/detection";
import { Detections } from "../wizard/detections";
import { keyOf, nameOf } from "../wizard/draft";
import { connectionQuery, sourceTablesQuery } from "../wizard/queries";

type Declared = ReturnType<typeof detectionsIn>;

/** The capture of a subscription, as the kind of its source describes it. */
function useCapture({ source, capture }: Subscription): ConnectionKind["captures"][number] | undefined {
  const kind = useQuery(connectionQuery(source)).data?.connection.kind;
  return useKinds()
    .find((each) => each.kind === kind)
    ?.captures.find((each) => each.kind === capture.kind);
}

/** How the changes of single tables are found; nothing where the capture reads all of them alike. */
export function SingleTables({ subscription }: { subscription: Subscription }) {
  const kind = detectionKind(useCapture(subscription));
  const [open, setOpen] = useState(false);
  const mayChange = usePermission()("operator");
  if (kind === null) return null;
  const count = Object.keys(detectionsIn(subscription.capture)).length;
  return (
    <Section title="Single tables" aside={count === 0 ? "all tables are read alike" : `${count} read in another way`}>
      {open ? (
        <Loaded subscription={subscription} kind={kind} onClose={() => setOpen(false)} />
      ) : (
        <div className="save">
          <p className="soft">
            {mayChange
              ? "The key of views and of tables without one, stamps, and methods of single tables."
              : "Changes require an operator's token; yours is read-only."}
          </p>
          {mayChange && (
            <button type="button" className="quiet" onClick={() => setOpen(true)}>
              Change single tables
            </button>
          )}
        </div>
      )}
    </Section>
  );
}

interface LoadedProps {
  subscription: Subscription;
  kind: NonNullable<ReturnType<typeof detectionKind>>;
  onClose: () => void;
}

function Loaded({ subscription, kind, onClose }: LoadedProps) {
  const tables = useQuery(sourceTablesQuery(subscription.source, subscription.capture.kind));
  return (
    <>
      {tables.isPending && (
        <p className="soft" role="status">
          The engine asks the source for its tables …
        </p>
      )}
      <QueryBoundary query={tables}>
        {(found) => <Form subscription={subscription} kind={kind} tables={found} onClose={onClose} />}
      </QueryBoundary>
    </>
  );
}

function Form({ subscription, kind, tables, onClose }: LoadedProps & { tables: SourceTable[] }) {
  const { name } = subscription;
  /** As it was when the form was opened. */
  const [before] = useState(() => detectionsIn(subscription.capture));
  const [detections, setDetections] = useState<DetectionDrafts>(() =>
    Object.fromEntries(
      tables.flatMap((table) => (before[nameOf(table)] === undefined ? [] : [[keyOf(table), draftOf(before[nameOf(table)] ?? {})]])),
    ),
  );
  const change = detectionPatch(before, tables, detections);
  const saving = useMutation({
    mutationFn: () => save(name, before, change),
    onSuccess: async () => {
      await queryClient.invalidateQueries({ queryKey: keys.ofSubscription(name) });
      announce(`${name}: single tables changed; pause and resume it to apply the change.`);
      onClose();
    },
  });
  const changed = Object.keys(change).length;
  return (
    <>
      <Detections
        detections={detections}
        onChange={(entered) => {
          saving.reset();
          setDetections(entered);
        }}
        kind={kind}
        tables={tables}
        isNeeded={() => false}
        refused={saving.error}
        isTitled
      />
      {saving.error !== null && <ProblemNote error={saving.error} />}
      <div className="save">
        <p className="soft" role="status">
          {changed === 0
            ? "Nothing is changed."
            : `${changed === 1 ? "One table is" : `${changed} tables are`} changed, not saved yet. It takes effect at the next start; rows of a changed table are read once by its new method.`}
        </p>
        {changed > 0 && (
          <button type="button" className="primary" disabled={saving.isPending} onClick={() => saving.mutate()}>
            {saving.isPending ? "Saving …" : "Save single tables"}
          </button>
        )}
        <button type="button" className="quiet" onClick={onClose}>
          {changed === 0 ? "Close" : "Discard"}
        </button>
      </div>
    </>
  );
}

const ABSENT = { key: null, method: null, stamp_column: null, flag_column: null, sweep_every: null, columns: null, stamps_below: null };

/** What a PATCH of `capture.tables` is given to make these entries of the drafts; null takes an entry or a member away. */
export function detectionPatch(
  declared: Readonly<Record<string, Detection>>,
  tables: readonly Pick<SourceTable, "schema" | "name">[],
  drafts: DetectionDrafts,
): Record<string, object | null> {
  const changed = tables.flatMap((table): [string, object | null][] => {
    const name = nameOf(table);
    const [before, draft] = [declared[name], drafts[keyOf(table)]];
    const now = draft === undefined ? undefined : detectionOf(draft);
    const was = before === undefined ? undefined : detectionOf(draftOf(before));
    if (JSON.stringify(now) === JSON.stringify(was)) return [];
    return [[name, now === undefined ? null : { ...ABSENT, ...now }]];
  });
  return Object.fromEntries(changed);
}

async function save(name: string, before: Declared, tables: ReturnType<typeof detectionPatch>): Promise<void> {
  const unchanged = (present: Subscription): void => {
    const now = detectionsIn(present.capture);
    const other = Object.keys(tables).find((table) => JSON.stringify(now[table]) !== JSON.stringify(before[table]));
    if (other !== undefined) throw changedMeanwhile(`How ${other} is read was changed by another user.`);
  };
  await patchUnchanged(name, unchanged, { capture: { tables } });
}
