-- The statements that made layout 1.
CREATE SCHEMA penstock;
COMMENT ON SCHEMA penstock IS 'Penstock: shadow log, layout 1';
CREATE TABLE penstock.changes (
    no bigint GENERATED ALWAYS AS IDENTITY (CACHE 1), xid xid8 NOT NULL, relation oid NOT NULL, op "char" NOT NULL,
    at timestamptz NOT NULL, old json, new json, old_row text, new_row text);
CREATE TABLE penstock.windows (no bigint PRIMARY KEY, snapshot pg_snapshot NOT NULL, at timestamptz NOT NULL);
CREATE TABLE penstock.readers (name text PRIMARY KEY, durable bigint NOT NULL, at timestamptz NOT NULL);
CREATE TABLE penstock.followed (reader text, relation oid, triggers text NOT NULL, PRIMARY KEY (reader, relation));
CREATE INDEX changes_by_xid ON penstock.changes (xid, no);
ALTER TABLE penstock.changes SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
INSERT INTO penstock.windows SELECT 1, pg_catalog.pg_current_snapshot(), pg_catalog.clock_timestamp();
CREATE OR REPLACE FUNCTION penstock.record_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER  AS $penstock$ BEGIN INSERT INTO penstock.changes (xid, relation, op, at, new) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'I', pg_catalog.clock_timestamp(), pg_catalog.row_to_json(NEW)); RETURN NULL; END $penstock$;
REVOKE ALL ON FUNCTION penstock.record_insert() FROM PUBLIC;
CREATE OR REPLACE FUNCTION penstock.record_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER  AS $penstock$ BEGIN INSERT INTO penstock.changes (xid, relation, op, at, old, new) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'U', pg_catalog.clock_timestamp(), pg_catalog.row_to_json(OLD), pg_catalog.row_to_json(NEW)); RETURN NULL; END $penstock$;
REVOKE ALL ON FUNCTION penstock.record_update() FROM PUBLIC;
CREATE OR REPLACE FUNCTION penstock.record_delete() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER  AS $penstock$ BEGIN INSERT INTO penstock.changes (xid, relation, op, at, old) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'D', pg_catalog.clock_timestamp(), pg_catalog.row_to_json(OLD)); RETURN NULL; END $penstock$;
REVOKE ALL ON FUNCTION penstock.record_delete() FROM PUBLIC;
CREATE OR REPLACE FUNCTION penstock.record_insert_exact() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET extra_float_digits = 1 SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET lc_monetary = 'C' SET bytea_output = 'hex' SET timezone = 'UTC' AS $penstock$ BEGIN INSERT INTO penstock.changes (xid, relation, op, at, new, new_row) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'I', pg_catalog.clock_timestamp(), pg_catalog.row_to_json(NEW), NEW::pg_catalog.text); RETURN NULL; END $penstock$;
REVOKE ALL ON FUNCTION penstock.record_insert_exact() FROM PUBLIC;
CREATE OR REPLACE FUNCTION penstock.record_update_exact() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET extra_float_digits = 1 SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET lc_monetary = 'C' SET bytea_output = 'hex' SET timezone = 'UTC' AS $penstock$ BEGIN INSERT INTO penstock.changes (xid, relation, op, at, old, new, old_row, new_row) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'U', pg_catalog.clock_timestamp(), pg_catalog.row_to_json(OLD), pg_catalog.row_to_json(NEW), OLD::pg_catalog.text, NEW::pg_catalog.text); RETURN NULL; END $penstock$;
REVOKE ALL ON FUNCTION penstock.record_update_exact() FROM PUBLIC;
CREATE OR REPLACE FUNCTION penstock.record_delete_exact() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET extra_float_digits = 1 SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET lc_monetary = 'C' SET bytea_output = 'hex' SET timezone = 'UTC' AS $penstock$ BEGIN INSERT INTO penstock.changes (xid, relation, op, at, old, old_row) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'D', pg_catalog.clock_timestamp(), pg_catalog.row_to_json(OLD), OLD::pg_catalog.text); RETURN NULL; END $penstock$;
REVOKE ALL ON FUNCTION penstock.record_delete_exact() FROM PUBLIC;
CREATE OR REPLACE FUNCTION penstock.record_truncate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER  AS $penstock$ BEGIN INSERT INTO penstock.changes (xid, relation, op, at) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'T', pg_catalog.clock_timestamp()); RETURN NULL; END $penstock$;
REVOKE ALL ON FUNCTION penstock.record_truncate() FROM PUBLIC;
CREATE OR REPLACE FUNCTION penstock.close_window() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $penstock$ DECLARE n bigint; BEGIN
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
        RAISE EXCEPTION 'penstock.close_window() needs a transaction of the level READ COMMITTED: windows close in the order of snapshots';
    END IF;
    PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    PERFORM pg_catalog.pg_advisory_xact_lock(7310001);
    INSERT INTO penstock.windows SELECT pg_catalog.max(no) OPERATOR(pg_catalog.+) 1, pg_catalog.pg_current_snapshot(),
        pg_catalog.clock_timestamp() FROM penstock.windows RETURNING no INTO n;
    PERFORM pg_catalog.pg_notify('penstock_windows', '');
    RETURN n; END $penstock$;
REVOKE ALL ON FUNCTION penstock.close_window() FROM PUBLIC;
