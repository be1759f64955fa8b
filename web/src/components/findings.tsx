import type { Finding } from "../api/client";
import type { Tone } from "../labels/tone";
import { Remedy } from "./remedy";
import { Statements } from "./statements";
import { StatusBadge } from "./statusBadge";

const TONES: Record<string, Tone> = { error: "bad", warning: "warn", info: "note" };
const ORDER = ["error", "warning", "info"];

/** Results of checks, the gravest first, each with what can be done. */
export function Findings({ findings }: { findings: Finding[] }) {
  const sorted = [...findings].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  return (
    <ul className="findings">
      {sorted.map((finding, number) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: findings have no identity, and are replaced as a whole.
        <li key={number}>
          <StatusBadge tone={TONES[finding.severity] ?? "unknown"}>{finding.severity}</StatusBadge>
          <div>
            <p>
              {finding.what} <code className="soft">{finding.code}</code>
            </p>
            {finding.remedy !== "" && <Remedy text={finding.remedy} actions={finding.actions} className="soft" />}
            {finding.sql !== undefined && finding.sql.length > 0 && <Statements name={`For ${finding.code}`} sql={finding.sql} />}
          </div>
        </li>
      ))}
    </ul>
  );
}
