import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { type Throughput as Figures, type Ticket, throughputQuery } from "../../api/tickets";
import { Fact, Facts } from "../../components/facts";
import { QueryBoundary } from "../../components/queryBoundary";
import { useFilters } from "../../filters";
import { milliseconds } from "../../labels/durations";
import { bytes, count } from "../../labels/numbers";
import { ticketName } from "../../labels/tickets";

interface ThroughputProps {
  subscription: string;
  /** Those that were applied, the newest first. */
  tickets: Ticket[];
}

/** What was replicated between two tickets; the two are kept in the address. */
export function Throughput({ subscription, tickets }: ThroughputProps) {
  const filters = useFilters();
  const [since, until] = [filters.get("since"), filters.get("ticket")];
  if (tickets.length < 2) return <p className="soft">It needs two applied tickets: one before and one after what is to be measured.</p>;
  const first = tickets.find(({ id }) => id === since);
  const later = tickets.filter((ticket) => isLater(ticket, first));
  return (
    <>
      <div className="between">
        <TicketChoice label="From" value={since} tickets={tickets.slice(1)} onChoose={(id) => filters.set({ since: id, ticket: null })} />
        <TicketChoice label="To" value={until} tickets={later} onChoose={(id) => filters.set({ ticket: id })} />
      </div>
      {since !== "" && until !== "" && <Between subscription={subscription} since={since} until={until} />}
    </>
  );
}

const isLater = ({ times }: Ticket, first: Ticket | undefined): boolean =>
  first?.times.captured_at == null || (times.captured_at !== null && Date.parse(times.captured_at) > Date.parse(first.times.captured_at));

interface TicketChoiceProps {
  label: string;
  /** Empty where none is chosen. */
  value: string;
  tickets: Ticket[];
  onChoose: (id: string) => void;
}

function TicketChoice({ label, value, tickets, onChoose }: TicketChoiceProps) {
  const id = useId();
  return (
    <div className="typed">
      <label htmlFor={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChoose(event.target.value)}>
        <option value="">choose a ticket</option>
        {value !== "" && tickets.every((ticket) => ticket.id !== value) && <option>{value}</option>}
        {tickets.map((ticket) => (
          <option key={ticket.id} value={ticket.id}>
            {ticketName(ticket)}, {ticket.created_at.slice(0, 19).replace("T", " ")} UTC
          </option>
        ))}
      </select>
    </div>
  );
}

function Between({ subscription, since, until }: { subscription: string; since: string; until: string }) {
  const found = useQuery(throughputQuery(subscription, until, since));
  return (
    <div className="outcome" aria-live="polite">
      <QueryBoundary query={found}>
        {({ throughput }) =>
          throughput === null ? <p className="soft">It is known once both are applied.</p> : <ThroughputFacts figures={throughput} />
        }
      </QueryBoundary>
    </div>
  );
}

const rate = (value: number | null): string => count(value === null ? null : Number(value.toFixed(value < 100 ? 2 : 0)));

export function ThroughputFacts({ figures }: { figures: Figures }) {
  const { seconds, log_bytes, transactions, commands } = figures;
  return (
    <>
      <Facts>
        {log_bytes !== null && (
          <Fact name="Log" note={`${bytes(log_bytes)} in all`}>
            {rate(figures.log_gib_per_hour)} GiB/h
          </Fact>
        )}
        <Fact name="Row changes" note={`${count(commands)} in all`}>
          {rate(figures.commands_per_second)} /s
        </Fact>
        <Fact name="Transactions" note={`${count(transactions)} in all`}>
          {rate(figures.transactions_per_second)} /s
        </Fact>
        <Fact name="Time">{milliseconds(seconds * 1000)}</Fact>
      </Facts>
      <p className="below soft">
        From the capture of the first to the commit of the second on the target.
        {transactions === null && " The subscription was restarted in between, so its counts cannot be compared."}
        {log_bytes !== null && " Log that is not replicated counts as bytes only."}
      </p>
    </>
  );
}
