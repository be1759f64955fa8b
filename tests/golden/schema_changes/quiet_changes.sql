-- Comments, indexes, checks, defaults, triggers, rights and statistics: nothing of it concerns the target.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent VALUES (1), (2), (3), (4);
INSERT INTO t VALUES (1, 'one', 1);
-- workload
COMMENT ON TABLE t IS 'a table';
COMMENT ON COLUMN t.v IS 'a column';
CREATE INDEX t_v ON t (v);
CREATE UNIQUE INDEX t_n ON t (n);
ALTER TABLE t ADD CONSTRAINT positive CHECK (n > 0);
ALTER TABLE t ADD CONSTRAINT t_parent FOREIGN KEY (n) REFERENCES parent;
ALTER TABLE t ALTER v SET DEFAULT 'default', ALTER n SET DEFAULT 4;
CREATE STATISTICS t_both ON v, n FROM t;
GRANT SELECT ON t TO PUBLIC;
INSERT INTO t VALUES (2, 'two', 2);
-- wait
CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.v := upper(NEW.v); RETURN NEW; END$$;
CREATE TRIGGER t_shout BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION shout();
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
INSERT INTO t VALUES (3, 'three', 3);
-- wait
ALTER TABLE t ALTER v DROP DEFAULT, DROP CONSTRAINT positive;
DROP INDEX t_v;
INSERT INTO t (id, v) VALUES (4, 'four');

ANALYZE t;
-- expected t: live
--   id | v     | n
--   1  | one   | 1
--   2  | two   | 2
--   3  | THREE | 3
--   4  | FOUR  | 4
-- history t: none
