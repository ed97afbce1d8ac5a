"""The functions and procedures of the extension, as the catalog has them."""

from dataclasses import dataclass

MEMBERS = """
SELECT p.oid, p.oid::regprocedure::text, CASE p.pronamespace WHEN '_outbox'::regnamespace THEN '_outbox.' ELSE '' END || p.proname, p.prokind = 'p', p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype),
       coalesce(obj_description(p.oid, 'pg_proc'), '') LIKE 'internal:%', p.pronargs - p.pronargdefaults,
       ARRAY(SELECT coalesce(n.name, '') FROM unnest(coalesce(p.proargmodes, array_fill('i'::"char", ARRAY[p.pronargs::integer])),
                                                     p.proargnames) WITH ORDINALITY n (mode, name, place)
              WHERE n.mode IN ('i', 'b', 'v') ORDER BY n.place),
       p.proargtypes::oid[]
  FROM pg_extension e
  JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
  JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
 WHERE e.extname = 'outbox' ORDER BY p.oid::regprocedure::text COLLATE "C"
"""

TYPES = """
SELECT t.oid, format_type(t.oid, NULL), CASE WHEN t.typcategory = 'A' THEN t.typelem END,
       ARRAY(SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = nullif(t.typrelid, 0) AND a.attnum > 0 AND NOT a.attisdropped
              ORDER BY a.attnum)
  FROM pg_type t
"""


@dataclass
class Type:
    name: str
    element: "Type" = None
    columns: tuple = ()


@dataclass
class Argument:
    name: str
    type: Type
    is_optional: bool


@dataclass
class Routine:
    signature: str
    name: str
    is_procedure: bool
    is_trigger: bool
    is_internal: bool
    arguments: list


def read_types(session):
    rows = {oid: rest for oid, *rest in session.rows(TYPES)}
    known = {}

    def type_of(oid):
        if oid not in known:
            name, element, columns = rows[oid]
            known[oid] = Type(name, element and type_of(element), tuple(map(type_of, columns)))
        return known[oid]

    return type_of


def discover(session):
    type_of = read_types(session)
    return [Routine(signature, name, is_procedure, is_trigger, is_internal,
                    [Argument(argument, type_of(type), place >= required)
                     for place, (argument, type) in enumerate(zip(names, types))])
            for _, signature, name, is_procedure, is_trigger, is_internal, required, names, types in session.rows(MEMBERS)]
