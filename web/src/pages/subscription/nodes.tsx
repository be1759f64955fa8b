import { useQuery } from "@tanstack/react-query";
import type { Node, Subscription } from "../../api/client";
import { nodesQuery } from "../../api/queries";
import { Section } from "../../components/page";
import { QueryBoundary } from "../../components/queryBoundary";
import { StatusBadge } from "../../components/statusBadge";
import { Ago } from "../../components/time";
import { hasNodes, laneShare, lateWords } from "../../labels/nodes";
import { bytes } from "../../labels/numbers";

const LENGTH = 160;
const HEIGHT = 8;

/** The databases of the source, a lane each, with the one that the others wait for. Nothing for a source of one database. */
export function NodesSection({ subscription }: { subscription: Subscription }) {
  return hasNodes(subscription) ? <Nodes name={subscription.name} /> : null;
}

function Nodes({ name }: { name: string }) {
  const nodes = useQuery(nodesQuery(name));
  const at = nodes.data?.find((node) => node.at !== null)?.at;
  return (
    <Section
      title="Nodes"
      aside={
        at != null && (
          <>
            Reported <Ago at={at} />
          </>
        )
      }
    >
      <QueryBoundary query={nodes}>{(found) => <Lanes nodes={found} />}</QueryBoundary>
    </Section>
  );
}

function Lanes({ nodes }: { nodes: Node[] }) {
  const late = lateWords(nodes);
  return (
    <>
      <table className="ledger lanes">
        <caption className="unseen">How far the log of each node is applied</caption>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">Behind</th>
            <th scope="col">Applied up to</th>
            <th scope="col">Read up to</th>
            <th scope="col">End of its log</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) => (
            <tr key={node.name}>
              <th scope="row" data-column="Node">
                {node.name}
                {node.late && (
                  <small>
                    <StatusBadge tone="warn">{node.away == null ? "others wait for it" : "cannot be read"}</StatusBadge>
                  </small>
                )}
                {node.away != null && (
                  <small>
                    since <Ago at={node.away.since} />: {node.away.reason}
                  </small>
                )}
              </th>
              <td data-column="Behind">
                <Lane share={laneShare(node, nodes)} late={node.late} /> {bytes(node.lag_bytes)}
              </td>
              <Position column="Applied up to" at={node.applied} />
              <Position column="Read up to" at={node.read} />
              <Position column="End of its log" at={node.source_end} />
            </tr>
          ))}
        </tbody>
      </table>
      {late !== null && <p className="below">{late}</p>}
    </>
  );
}

const Position = ({ column, at }: { column: string; at: string | null }) => (
  <td data-column={column}>{at === null ? "–" : <code>{at}</code>}</td>
);

/** Its lag, as a part of the longest lane. */
function Lane({ share, late }: { share: number; late: boolean }) {
  return (
    <svg
      className={late ? "late" : undefined}
      viewBox={`0 0 ${LENGTH} ${HEIGHT}`}
      width={LENGTH}
      height={HEIGHT}
      aria-hidden="true"
      focusable="false"
    >
      <rect className="track" y="2" width={LENGTH} height={HEIGHT - 4} fill="currentColor" />
      <rect y="2" width={LENGTH * share} height={HEIGHT - 4} fill="currentColor" />
    </svg>
  );
}
