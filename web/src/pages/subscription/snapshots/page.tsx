import { useQuery } from "@tanstack/react-query";
import type { Subscription } from "../../../api/client";
import { snapshotsQuery } from "../../../api/snapshots";
import { OlderNewer } from "../../../components/olderNewer";
import { Section } from "../../../components/page";
import { QueryBoundary } from "../../../components/queryBoundary";
import { useFilters } from "../../../filters";
import { usePermission } from "../../../usePermission";
import { SnapshotLedger } from "./list";
import { Schedule } from "./schedule";
import { TakeSnapshot } from "./take";

/** Consistent states of the copy as files: taken, scheduled, listed, deleted. */
export default function Snapshots({ subscription: { name } }: { subscription: Subscription }) {
  const filters = useFilters();
  const snapshots = useQuery(snapshotsQuery(name, filters.get("from")));
  const mayTake = usePermission()("operator");
  return (
    <>
      <p className="prose soft">
        A snapshot is the copy at one position, written to files on the engine's machine while the replication continues. Any program can
        open them.
      </p>
      <Section title="Take one">
        {mayTake ? (
          <TakeSnapshot subscription={name} />
        ) : (
          <p className="soft">Snapshots require an operator's token; yours is read-only.</p>
        )}
      </Section>
      <Section title="Schedule">
        <Schedule subscription={name} />
      </Section>
      <Section title="Snapshots" aside="Newest first">
        <QueryBoundary query={snapshots}>
          {({ items, next_page_token }) => (
            <>
              {items.length === 0 ? <p className="soft">None was taken yet.</p> : <SnapshotLedger subscription={name} snapshots={items} />}
              <OlderNewer filters={filters} next={next_page_token} noun="snapshots" />
            </>
          )}
        </QueryBoundary>
      </Section>
    </>
  );
}
