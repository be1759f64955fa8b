import { useQuery } from "@tanstack/react-query";
import { type Batch, batchesQuery } from "../../api/history";
import { OlderNewer } from "../../components/olderNewer";
import { QueryBoundary } from "../../components/queryBoundary";
import { Moment } from "../../components/time";
import { useFilters } from "../../filters";
import { bytes, count } from "../../labels/numbers";
import { short } from "../../labels/stages";
import { SubscriptionFrame } from "./frame";

const PATHS: Record<string, string> = { driver: "in the engine", spark: "by Spark" };
const MODES: Record<string, string> = { batch: "net changes", grouped: "in groups", transactional: "one by one" };

/** What was committed on the target, batch by batch. */
export function BatchesPage({ name }: { name: string }) {
  const filters = useFilters();
  const batches = useQuery(batchesQuery(name, filters.get("from")));
  return (
    <SubscriptionFrame name={name} part="batches">
      {() => (
        <>
          <p className="prose soft">
            Source transactions that were applied together. A batch collects changes until it is full, old enough or demanded by a wait;
            then its net changes are computed and committed on the target.
          </p>
          <QueryBoundary query={batches}>
            {({ items, next_page_token }) => (
              <>
                {items.length === 0 ? <p>No batch was committed yet.</p> : <Ledger batches={items} />}
                <OlderNewer filters={filters} next={next_page_token} noun="batches" />
              </>
            )}
          </QueryBoundary>
        </>
      )}
    </SubscriptionFrame>
  );
}

function Ledger({ batches }: { batches: Batch[] }) {
  return (
    <table className="ledger batches">
      <caption className="unseen">Batches, the newest first</caption>
      <thead>
        <tr>
          <th scope="col">Committed</th>
          <th scope="col" className="number">
            Transactions
          </th>
          <th scope="col">Changes</th>
          <th scope="col" className="number">
            Rows written
          </th>
          <th scope="col" className="number">
            Log
          </th>
          <th scope="col" className="number">
            Gathering
          </th>
          <th scope="col" className="number">
            Net change
          </th>
          <th scope="col" className="number">
            Apply
          </th>
          <th scope="col">How</th>
        </tr>
      </thead>
      <tbody>
        {batches.map((batch) => (
          <Row key={`${batch.epoch}/${batch.batch}`} batch={batch} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ batch }: { batch: Batch }) {
  const changes = Object.entries(batch.rows).filter(([, number]) => number > 0);
  return (
    <tr>
      <th scope="row" data-column="Committed">
        <span>
          <Moment at={batch.committed_at} />
        </span>
        <small>
          <code>{batch.end}</code>
        </small>
      </th>
      <td data-column="Transactions" className="number">
        {count(batch.transactions)}
      </td>
      <td data-column="Changes">
        {changes.length === 0 ? (
          <span className="soft">none</span>
        ) : (
          changes.map(([operation, number]) => `${count(number)} ${operation}`).join(", ")
        )}
        {changes.length > 0 && <small>{batch.tables === 1 ? "in 1 table" : `in ${count(batch.tables)} tables`}</small>}
      </td>
      <td data-column="Rows written" className="number">
        {count(batch.net_rows)}
      </td>
      <td data-column="Log" className="number">
        {bytes(batch.bytes)}
      </td>
      <Time column="Gathering" value={batch.seconds.capture_age} />
      <Time column="Net change" value={batch.seconds.job} />
      <Time column="Apply" value={batch.seconds.commit} />
      <td data-column="How">
        {MODES[batch.mode] ?? batch.mode}, {PATHS[batch.path] ?? batch.path}
        {batch.demanded && <small>sealed early for a waiting query</small>}
      </td>
    </tr>
  );
}

function Time({ column, value }: { column: string; value: number | undefined }) {
  return (
    <td data-column={column} className="number">
      {value === undefined ? "–" : short(value)}
    </td>
  );
}
