-- replicate events
-- setup
CREATE TABLE events (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE events_a PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE events_b PARTITION OF events FOR VALUES FROM ('2020-02-01') TO ('2020-03-01') PARTITION BY LIST (id);
CREATE TABLE events_b1 PARTITION OF events_b FOR VALUES IN (1, 2, 3);
CREATE TABLE events_b2 (v text, day date NOT NULL, id int NOT NULL);
ALTER TABLE events_b ATTACH PARTITION events_b2 DEFAULT;
INSERT INTO events SELECT g, '2020-01-10', 'a' FROM generate_series(1, 50) g;
INSERT INTO events SELECT g, '2020-02-10', 'b' FROM generate_series(1, 50) g;
-- workload
INSERT INTO events VALUES (100, '2020-01-01', 'root'), (2, '2020-02-28', 'root');

INSERT INTO events_b2 (id, day, v) VALUES (200, '2020-02-02', 'leaf');
-- wait
UPDATE events SET day = '2020-02-15' WHERE id BETWEEN 1 AND 5 AND day = '2020-01-10';

UPDATE events SET v = 'changed' WHERE id = 7;
DELETE FROM events WHERE id = 8;

UPDATE events SET id = 1 WHERE id = 9 AND day = '2020-01-10';
-- wait
TRUNCATE events;
INSERT INTO events VALUES (1, '2020-01-02', 'after');
