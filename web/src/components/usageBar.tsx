import { percent } from "../labels/numbers";

const LENGTH = 56;
const HEIGHT = 8;

/** A share of a whole, 0 to 1, as a bar beside its number; a line marks where it becomes a risk. */
export function UsageBar({ share, warnAt }: { share: number; warnAt: number }) {
  const held = Math.min(1, Math.max(0, share));
  return (
    <span className="usage-bar">
      <svg
        className={share < warnAt ? undefined : "over"}
        viewBox={`0 0 ${LENGTH} ${HEIGHT}`}
        width={LENGTH}
        height={HEIGHT}
        aria-hidden="true"
        focusable="false"
      >
        <rect className="track" y="2" width={LENGTH} height={HEIGHT - 4} fill="currentColor" />
        <rect y="2" width={LENGTH * held} height={HEIGHT - 4} fill="currentColor" />
        <rect className="limit" x={LENGTH * warnAt} width="1" height={HEIGHT} fill="currentColor" />
      </svg>
      {percent(share)}
    </span>
  );
}
