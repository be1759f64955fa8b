import { useEffect, useId, useRef, useState } from "react";

interface NewKeyProps {
  name: string;
  signingKey: string;
  onDone: () => void;
}

/** A signing key that was made in this browser: the only time that it is shown. */
export function NewKey({ name, signingKey, onDone }: NewKeyProps) {
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  const [copied, setCopied] = useState(false);
  useEffect(() => field.current?.select(), []);
  const copy = async (): Promise<void> => {
    field.current?.select();
    try {
      await navigator.clipboard.writeText(signingKey);
      setCopied(true);
    } catch {
      // Browsers allow it on secure addresses only; the key is selected for copying by hand.
    }
  };
  return (
    <div className="new-key">
      <p className="prose">
        The alert channel {name} is stored. Give this key to the receiver, which verifies signatures with it: it is shown only now.
      </p>
      <label htmlFor={id}>Signing key of {name}</label>
      <input ref={field} id={id} className="code" readOnly value={signingKey} onFocus={(event) => event.target.select()} />
      <div className="form-foot">
        <button type="button" onClick={() => void copy()}>
          Copy
        </button>
        <button type="button" className="primary" onClick={onDone}>
          I have the key
        </button>
        <span className="soft" role="status">
          {copied && "It was copied."}
        </span>
      </div>
    </div>
  );
}
