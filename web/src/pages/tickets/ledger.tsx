import { isOpen, type Ticket } from "../../api/tickets";
import { Remedy } from "../../components/remedy";
import { StatusBadge } from "../../components/statusBadge";
import { Ago, Moment } from "../../components/time";
import { milliseconds } from "../../labels/durations";
import { STAGE_WORDS, STAGES, shownMs, stageMs, ticketStateWords } from "../../labels/tickets";
import { StageBar, StageLegend } from "./stages";

/** Tickets with the time each spent at each stage, as a bar and in numbers. */
export function TicketLedger({ tickets }: { tickets: Ticket[] }) {
  if (tickets.length === 0) return <p className="soft">No ticket has been placed yet.</p>;
  const mostMs = Math.max(1, ...tickets.map(shownMs));
  return (
    <>
      <StageLegend />
      <table className="ledger tickets">
        <caption className="unseen">Tickets and the time each spent at each stage</caption>
        <thead>
          <tr>
            <th scope="col">Ticket</th>
            <th scope="col">State</th>
            <th scope="col" className="bar">
              Stages, up to {milliseconds(mostMs)}
            </th>
            {STAGES.map((stage) => (
              <th key={stage} scope="col" className="number">
                {STAGE_WORDS[stage].word}
              </th>
            ))}
            <th scope="col" className="number">
              In all
            </th>
          </tr>
        </thead>
        <tbody>
          {tickets.map((ticket) => (
            <Row key={ticket.id} ticket={ticket} mostMs={mostMs} />
          ))}
        </tbody>
      </table>
    </>
  );
}

function Row({ ticket, mostMs }: { ticket: Ticket; mostMs: number }) {
  const { tone, word, where } = ticketStateWords(ticket);
  const { id, name, reason, remedy, actions, created_at: placed } = ticket;
  return (
    <tr>
      <th scope="row" data-column="Ticket">
        {name ?? <code>{id}</code>}
        <small>
          <Moment at={placed} />
          {name !== null && (
            <>
              {" "}
              <code>{id}</code>
            </>
          )}
        </small>
      </th>
      <td data-column="State" className="telling">
        <StatusBadge tone={tone}>{word}</StatusBadge>
        {isOpen(ticket) && (
          <small>
            {where}; placed <Ago at={placed} />
          </small>
        )}
        {reason !== null && <small>{reason}</small>}
        {remedy != null && <Remedy text={remedy} actions={actions} />}
      </td>
      <td data-column="Stages" className="bar">
        <StageBar ticket={ticket} mostMs={mostMs} />
      </td>
      {STAGES.map((stage) => (
        <td key={stage} data-column={STAGE_WORDS[stage].word} className="number">
          {milliseconds(stageMs(ticket, stage))}
        </td>
      ))}
      <td data-column="In all" className="number">
        {milliseconds(ticket.durations.total_ms)}
      </td>
    </tr>
  );
}
